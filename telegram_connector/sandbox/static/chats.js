/** The list of chats: the one where something happened last on top. */

import { el } from "./parts/dom.js";
import { avatar, prefix, timeOf, titleOf, tone, when } from "./shared.js";

export class ChatList {
  /**
   * @param {HTMLElement} root
   * @param {function(string): void} open Called with the place of a chat that was chosen.
   */
  constructor(root, open) {
    this.root = root;
    this.open = open;
    this.chats = new Map();
    this.items = new Map();
    this.current = null;
    this.held = new Set();
    root.addEventListener("keydown", (event) => this.move(event));
  }

  /** Shows these chats and no others; what was not read stays so. */
  set(chats) {
    const unread = new Map([...this.chats].map(([place, chat]) => [place, chat.unread]));
    const ordered = [...chats].sort((a, b) => (b.newest?.number ?? 0) - (a.newest?.number ?? 0));
    this.chats = new Map(
      ordered.map((chat) => [chat.place, { ...chat, unread: unread.get(chat.place) ?? 0 }]),
    );
    const focused = [...this.items].find(([, item]) => item.contains(document.activeElement))?.[0];
    this.items.clear();
    this.root.replaceChildren(...[...this.chats.values()].map((chat) => this.item(chat)));
    this.items.get(focused)?.firstElementChild.focus({ preventScroll: true });
  }

  /** Takes a new or changed entry over. */
  receive(entry, isRead) {
    const before = this.chats.get(entry.place);
    const isNew = entry.number > (before?.newest?.number ?? 0);
    const chat = {
      ...entry.chat,
      count: (before?.count ?? 0) + (isNew ? 1 : 0),
      unread: (before?.unread ?? 0) + (isNew && !isRead ? 1 : 0),
      newest: before?.newest ?? null,
    };
    if (entry.number >= (before?.newest?.number ?? 0)) {
      const text =
        entry.message?.text ??
        (entry.calls.at(-1).params.text || entry.calls.at(-1).description || entry.calls.at(-1).method);
      chat.newest = {
        number: entry.number,
        text: text.slice(0, 120),
        outcome: entry.outcome,
        at: when(entry),
      };
    }
    this.chats.set(entry.place, chat);
    this.refresh(chat, isNew);
  }

  /** Marks a chat as the open one, and as read. */
  choose(place) {
    const before = this.current;
    this.current = place;
    if (this.chats.has(place)) this.chats.get(place).unread = 0;
    for (const name of [before, place]) {
      if (this.chats.has(name)) this.refresh(this.chats.get(name), false);
    }
  }

  /** Shows which chats are held: a set of places. */
  setHeld(held) {
    const before = this.held;
    this.held = held;
    for (const [place, chat] of this.chats) {
      if (before.has(place) !== held.has(place)) this.refresh(chat, false);
    }
  }

  refresh(chat, toTop) {
    const old = this.items.get(chat.place);
    const hadFocus = old?.contains(document.activeElement);
    const fresh = this.item(chat);
    if (toTop || !old) {
      old?.remove();
      this.root.prepend(fresh);
    } else {
      old.replaceWith(fresh);
    }
    if (hadFocus) fresh.firstElementChild.focus();
  }

  item(chat) {
    const isCurrent = chat.place === this.current;
    const { newest } = chat;
    const button = el(
      "button",
      {
        type: "button",
        "aria-current": isCurrent ? "true" : null,
        on: { click: () => this.open(chat.place) },
      },
      avatar(chat),
      el("span", { class: "name" }, titleOf(chat)),
      el("time", {}, newest ? timeOf(newest.at) : ""),
      el(
        "span",
        { class: `snippet ${newest ? tone(newest.outcome) : ""}` },
        newest ? prefix(newest.outcome) + newest.text : "nothing yet",
      ),
      el("span", { class: "badges" }, badge(chat, this.held.has(chat.place))),
    );
    const item = el("li", {}, button);
    this.items.set(chat.place, item);
    return item;
  }

  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...this.root.querySelectorAll("button")];
    buttons[buttons.indexOf(document.activeElement) + step]?.focus();
  }
}

function badge(chat, isHeld) {
  if (chat.unread) return el("span", { class: "badge accent" }, String(chat.unread));
  if (isHeld) return el("span", { class: "badge warn" }, "held");
  if (chat.state && chat.state !== "ok") return el("span", { class: "badge bad" }, chat.state);
  return null;
}
