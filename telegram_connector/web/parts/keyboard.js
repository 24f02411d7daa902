/** Keys that act on the page as a whole, and the list of them. */

import { button, el } from "./dom.js";

/** Whether a pressed key is the page's: not that of a field, of the browser, or of a dialog over the page. */
export function isForPage(event) {
  const isTyping =
    event.target.matches?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
  return !isTyping && !document.querySelector("dialog[open]");
}

/**
 * Shows which keys there are.
 *
 * @param {[string, string][]} keys what to press, several with spaces between them, and what it does; "…" stands
 *   for those in between.
 */
export function showKeys(keys) {
  const close = button({}, "Close");
  const rows = keys.flatMap(([key, what]) => [
    el("dt", {}, ...key.split(" ").map((one) => (one === "…" ? " … " : el("kbd", {}, one)))),
    el("dd", {}, what),
  ]);
  const dialog = el(
    "dialog",
    { "aria-label": "Keyboard" },
    el("h2", {}, "Keyboard"),
    el("dl", { class: "keys" }, ...rows),
    close,
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
