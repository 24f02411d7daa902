/** Search over all chats: their names here, their texts by the server. */

import { get } from "./parts/api.js";
import { button, el, quiet } from "./parts/dom.js";
import { prefix, sentText, subtitleOf, timeOf, titleOf, when } from "./shared.js";

const QUIET_MS = 150;
const AROUND = 60;

export class Search {
  /**
   * @param {HTMLInputElement} field
   * @param {HTMLElement} found
   * @param {HTMLElement} list What is shown instead while nothing is searched for.
   * @param {function(): Iterable<Object>} chats
   * @param {function(string, number|null): void} go To a chat, and to an entry in it.
   */
  constructor(field, found, list, chats, go) {
    Object.assign(this, { field, found, list, chats, go });
    const ask = quiet(() => this.ask(), QUIET_MS);
    field.addEventListener("input", ask);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && field.value) {
        event.stopPropagation();
        this.clear();
      } else if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        (found.hidden ? list : found).querySelector("button")?.focus();
      }
    });
    found.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const buttons = [...found.querySelectorAll("button")];
      (buttons[buttons.indexOf(document.activeElement) + step] ?? (step < 0 ? field : null))?.focus();
    });
  }

  clear() {
    this.field.value = "";
    this.show(false);
  }

  show(isFound) {
    this.found.hidden = !isFound;
    this.list.hidden = isFound;
  }

  async ask() {
    const words = this.field.value.trim();
    if (!words) {
      this.show(false);
      return;
    }
    let entries = [];
    let trouble = null;
    try {
      entries = await get("/_sandbox/search", { words });
    } catch (error) {
      trouble = error.message;
    }
    if (words !== this.field.value.trim()) return;
    const wanted = words.toLowerCase();
    const chats = [...this.chats()].filter((chat) =>
      `${titleOf(chat)} ${subtitleOf(chat)}`.toLowerCase().includes(wanted),
    );
    this.found.replaceChildren(
      ...(chats.length ? [el("h3", {}, "Chats"), ...chats.slice(0, 20).map((chat) => this.chat(chat))] : []),
      ...(entries.length
        ? [
            el("h3", {}, entries.length === 100 ? "Messages: the newest 100" : `Messages: ${entries.length}`),
            ...entries.map((entry) => this.entry(entry, words)),
          ]
        : []),
    );
    if (trouble || !(chats.length || entries.length))
      this.found.append(el("h3", {}, trouble ?? "Nothing found"));
    this.show(true);
  }

  chat(chat) {
    return button(
      { on: { click: () => this.go(chat.place, null) } },
      el("span", { class: "name" }, titleOf(chat)),
      el("span", { class: "snippet" }, subtitleOf(chat)),
    );
  }

  entry(entry, words) {
    return button(
      { on: { click: () => this.go(entry.place, entry.number) } },
      el("span", { class: "name" }, titleOf(entry.chat)),
      el("time", {}, timeOf(when(entry))),
      el("span", { class: "snippet" }, prefix(entry.outcome), ...around(entry, words)),
    );
  }
}

/** What is around the words in the text that has them. */
function around(entry, words) {
  const call = entry.calls.at(-1);
  const texts = [entry.message?.text, sentText(entry).text, call?.description].filter(Boolean);
  const wanted = words.toLowerCase();
  const text = texts.find((one) => one.toLowerCase().includes(wanted)) ?? texts[0] ?? "";
  const at = text.toLowerCase().indexOf(wanted);
  if (at < 0) return [text.slice(0, 2 * AROUND)];
  const begin = Math.max(0, at - AROUND);
  const end = at + words.length;
  return [
    begin ? "…" : "",
    text.slice(begin, at),
    el("mark", { class: "found" }, text.slice(at, end)),
    text.slice(end, end + AROUND),
  ];
}
