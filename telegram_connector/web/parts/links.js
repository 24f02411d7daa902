/** Where a link leads, before anybody goes there. */

import { button, copyButton, el } from "./dom.js";

// What a browser may open; of all others only the address is shown.
const OPENED = new Set(["http:", "https:", "mailto:", "tg:"]);

/** Shows a link's target, and opens it only on a second press. */
export function showLink(url) {
  const close = button({ class: "quiet" }, "Close");
  const dialog = el(
    "dialog",
    { class: "link-dialog", "aria-label": "Where this link leads" },
    el("h2", {}, "This link leads to"),
    el("p", { class: "target" }, url),
    el(
      "p",
      { class: "row" },
      opened(url) &&
        el("a", { class: "button", href: url, target: "_blank", rel: "noopener noreferrer" }, "Open"),
      copyButton(() => url),
      close,
    ),
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function opened(url) {
  try {
    return OPENED.has(new URL(url).protocol);
  } catch {
    return false;
  }
}
