/** Elements made of nodes and text. Nothing here takes markup, so no text of a message can become any. */

/**
 * Makes an element.
 *
 * @param {string} tag
 * @param {Object} attributes null, undefined and false are left out, true is an empty value; `on` maps names of
 *   events to listeners.
 * @param {...(Node|string|null|undefined|false)} children
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** A button that submits nothing. */
export function button(attributes, ...children) {
  return el("button", { type: "button", ...attributes }, ...children);
}

/** Makes something that is no button act like one, for pointer and keyboard. */
export function pressable(element, press) {
  element.tabIndex = 0;
  element.addEventListener("click", (event) => press(event));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    press(event);
  });
  return element;
}

/** Changes what is in an element, and leaves the focus where it was, or on what is there now. */
export function keepingFocus(root, change) {
  const pressed = "button:not([disabled]), a[href], input, select, textarea, summary";
  const reachable = () => [...root.querySelectorAll(pressed)].filter((element) => element.checkVisibility());
  const at = reachable().indexOf(document.activeElement);
  change();
  if (at < 0) return;
  const now = reachable();
  now[Math.min(at, now.length - 1)]?.focus({ preventScroll: true });
}

/** Calls `work` once things have been quiet for so many milliseconds. */
export function quiet(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

/** The index in UTF-16 units, as scripts count, of a position in characters. */
export function unitsOf(text, position) {
  let index = 0;
  for (let left = position; left > 0 && index < text.length; left -= 1) {
    index += text.codePointAt(index) > 0xffff ? 2 : 1;
  }
  return index;
}

/** A button that copies a text. */
export function copyButton(text, label = "Copy") {
  const made = button({ class: "small" }, label);
  made.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      made.textContent = "Copied";
    } catch {
      made.textContent = "Not allowed";
    }
    setTimeout(() => made.replaceChildren(label), 1500);
  });
  return made;
}
