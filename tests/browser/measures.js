// What the tests measure in a page; there before its own scripts are.

// When each entry was shown, by its text, on the clock that Python reads too.
window.shownAt = {};
window.violations = [];
document.addEventListener("entry-shown", ({ detail }) => {
  const text = detail.message ? detail.message.raw_text : detail.calls.at(-1).params.text;
  window.shownAt[text] ??= Date.now() / 1000;
});
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective),
);

// The contrast of every visible text with its background as it is seen: what is transparent lies on what is behind it.
window.contrasts = () => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1,
  });
  const light = ({ r, g, b }) => {
    const part = (value) =>
      value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (element) => {
    const own = parse(getComputedStyle(element).backgroundColor);
    if (own.a === 1) return own;
    return over(
      own,
      element.parentElement ? ground(element.parentElement) : { r: 255, g: 255, b: 255, a: 1 },
    );
  };
  const found = [];
  const note = (element, colour, what) => {
    const below = ground(element);
    const [a, b] = [light(over(parse(colour), below)), light(below)];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), what.trim().slice(0, 40), colour]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest(".spoiler.hidden"))
      continue;
    if (element.closest("noscript, option")) continue;
    note(element, getComputedStyle(element).color, walker.currentNode.data);
  }
  for (const field of document.querySelectorAll("input, textarea, select")) {
    if (!field.checkVisibility()) continue;
    note(field, getComputedStyle(field).color, field.id);
    if (field.placeholder) note(field, getComputedStyle(field, "::placeholder").color, field.placeholder);
  }
  return found;
};

// What is wider than the page, unless it can be scrolled.
window.overflowing = () => {
  const scrolls = (element) =>
    element &&
    element !== document.body &&
    (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter((element) => {
    const { right, left, width } = element.getBoundingClientRect();
    return (
      width > 1 &&
      element.checkVisibility() &&
      (right > innerWidth + 0.5 || left < -0.5) &&
      !scrolls(element.parentElement)
    );
  });
  const page = document.scrollingElement;
  return [
    ...(page.scrollWidth > innerWidth ? ["the page"] : []),
    ...wide.map((element) => element.outerHTML.slice(0, 120)),
  ];
};

// What can be pressed or filled in, each with a name for the test; one message and one tab stand for all.
window.pressable = () => {
  const all = document.querySelectorAll(
    "button, a[href], input, select, textarea, summary, [role=button], [role=link], .entry",
  );
  return [...all]
    .filter((element) => {
      if (!element.checkVisibility() || element.disabled) return false;
      if (element.getAttribute("role") === "tab") return element.getAttribute("aria-selected") === "true";
      const entry = element.closest(".entry");
      return !entry || entry.tabIndex === 0;
    })
    .map((element, number) => (element.dataset.reach = `${number} ${element.outerHTML.slice(0, 80)}`));
};
