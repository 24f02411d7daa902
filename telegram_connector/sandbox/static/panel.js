/** What is beside the chat: details of a message, the check of a text, faults; one at a time. */

import { button, el } from "./parts/dom.js";
import { icon } from "./parts/icons.js";

export class Panel {
  /**
   * @param {HTMLElement} root
   * @param {[string, string, HTMLElement][]} tabs Name, label and content of each.
   * @param {function(string|null): void} tell Told which one is shown; null for none.
   */
  constructor(root, tabs, tell) {
    this.root = root;
    this.tell = tell;
    this.name = null;
    this.contents = new Map(tabs.map(([name, , content]) => [name, content]));
    this.tabs = new Map(tabs.map(([name, label]) => [name, this.tab(name, label)]));
    const list = el("div", { role: "tablist", "aria-label": "Panel" }, ...this.tabs.values());
    list.addEventListener("keydown", (event) => this.move(event));
    const close = button(
      { class: "plain", id: "close-panel", title: "Close (Esc)", "aria-label": "Close" },
      icon("close"),
    );
    close.addEventListener("click", () => this.close());
    root.append(el("div", { class: "title" }, list, close), ...this.contents.values());
    for (const [name, content] of this.contents) {
      content.setAttribute("role", "tabpanel");
      content.setAttribute("aria-labelledby", `tab-${name}`);
    }
  }

  get isOpen() {
    return !this.root.hidden;
  }

  open(name) {
    if (!this.isOpen) this.before = document.activeElement;
    this.name = name;
    this.root.hidden = false;
    for (const [other, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      this.contents.get(other).hidden = other !== name;
    }
    this.tell(name);
  }

  close() {
    if (!this.isOpen) return;
    const hadFocus = this.root.contains(document.activeElement);
    this.root.hidden = true;
    this.name = null;
    this.tell(null);
    if (hadFocus) this.before?.focus();
  }

  toggle(name) {
    if (this.name === name) {
      this.close();
      return;
    }
    this.open(name);
    (this.contents.get(name).querySelector("textarea, input, select") ?? this.tabs.get(name)).focus();
  }

  tab(name, label) {
    return button({ role: "tab", id: `tab-${name}`, on: { click: () => this.open(name) } }, label);
  }

  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = [...this.tabs.keys()];
    const next = names[(names.indexOf(this.name) + step + names.length) % names.length];
    this.open(next);
    this.tabs.get(next).focus();
  }
}
