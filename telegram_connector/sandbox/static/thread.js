/**
 * The messages of one chat. It holds a stretch of them: the newest at first, older ones on request, and whatever
 * surrounds a message that was jumped to. Only one of them, and what is in it, is on the way of the Tab key; arrows
 * move on.
 */

import { get } from "./parts/api.js";
import { button, el } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import { show } from "./entry.js";
import { dayOf, when } from "./shared.js";

const AT_ONCE = 200;
const MOST = 2 * AT_ONCE;
const NEAR_PIXELS = 80;

export class Thread {
  /**
   * @param {HTMLElement} root
   * @param {HTMLButtonElement} newest Leads back to the newest message.
   * @param {{details: function(Object), fail: function(Error)}} actions
   */
  constructor(root, newest, { details, fail }) {
    this.root = root;
    this.newest = newest;
    this.actions = { details, jump: (reply) => this.jump(reply.number) };
    this.fail = fail;
    this.place = null;
    this.topic = "";
    // Which asking for a stretch is the latest, what was told since it began, and whether it failed.
    this.asked = 0;
    this.late = null;
    this.failed = false;
    this.entries = new Map();
    this.older = this.pager("Show older messages", "older");
    this.newer = this.pager("Show newer messages", "newer");
    this.list = el("div", {});
    this.root.append(this.older, this.list, this.newer);
    newest.addEventListener("click", () => (this.atEnd ? this.toBottom() : this.open(this.place)));
    root.addEventListener("keydown", (event) => this.move(event));
    root.addEventListener("focusin", (event) => this.make(event.target.closest(".entry")));
    root.addEventListener("scroll", () => this.isAtBottom() && this.atEnd && this.caughtUp(), {
      passive: true,
    });
  }

  /** Shows a chat from its newest message up. */
  async open(place) {
    if (place !== this.place) this.list.replaceChildren();
    this.place = place;
    const asked = this.begin();
    const entries = await this.ask({});
    if (asked !== this.asked) return;
    this.failed = entries === null;
    if (this.failed) return;
    this.fill(entries, entries.length === AT_ONCE, true);
    this.toBottom();
  }

  /** Goes to the newest of what is held. */
  toBottom() {
    this.root.scrollTop = this.root.scrollHeight;
    this.make(this.list.querySelector(".entry:last-child"));
    if (this.atEnd) this.caughtUp();
  }

  /** Shows a message of the chat that is open, wherever it is. */
  async jump(number) {
    if (!this.entries.has(number)) {
      const asked = this.begin();
      const [before, after] = await Promise.all([
        this.ask({ before: number + 1, count: AT_ONCE / 2 }),
        this.ask({ after: number, count: AT_ONCE / 2 }),
      ]);
      if (asked !== this.asked) return;
      if (!before || !after) {
        this.takeLate();
        return;
      }
      this.fill([...before, ...after], before.length === AT_ONCE / 2, after.length < AT_ONCE / 2);
    }
    const article = this.article(number);
    if (!article) return;
    article.hidden = false;
    article.scrollIntoView({ block: "center" });
    article.focus({ preventScroll: true });
    article.classList.remove("jumped");
    // Read, so that the animation begins anew.
    void article.offsetWidth;
    article.classList.add("jumped");
  }

  /** Takes new or changed entries of this chat over. */
  receive(entries) {
    if (this.late) {
      this.late.push(...entries);
      return;
    }
    const stays = this.isAtBottom();
    let fresh = 0;
    for (const entry of entries) {
      if (this.entries.has(entry.number)) this.replace(entry);
      else if (this.atEnd && entry.number > (this.last() ?? 0)) this.append(entry);
      else if (entry.number <= (this.last() ?? 0)) continue;
      fresh += 1;
    }
    if (stays && this.atEnd) {
      this.trim();
      this.root.scrollTop = this.root.scrollHeight;
    } else if (fresh) {
      this.unseen += fresh;
      this.newest.replaceChildren(icon("down"), `${this.unseen} new`);
      this.newest.hidden = false;
    }
  }

  /** Shows only messages of a topic; "" for all. */
  filter(topic) {
    this.topic = topic;
    for (const article of this.list.querySelectorAll(".entry")) article.hidden = this.isFiltered(article);
    this.root.scrollTop = this.root.scrollHeight;
  }

  /** Marks the message whose details are shown. */
  mark(number) {
    this.list.querySelector(".entry.shown")?.classList.remove("shown");
    if (number !== null) this.article(number)?.classList.add("shown");
  }

  /** Focuses the message that arrows start from. */
  focus() {
    this.current()?.focus();
  }

  /** The entry that has the focus, or had it last. */
  chosen() {
    const article = this.current();
    return article ? this.entries.get(Number(article.dataset.number)) : null;
  }

  // -- the stretch

  /** Begins to ask for another stretch; what is told meanwhile is kept, for the answer may not have it. */
  begin() {
    this.late = [];
    this.asked += 1;
    return this.asked;
  }

  takeLate() {
    const late = this.late ?? [];
    this.late = null;
    if (late.length) this.receive(late);
  }

  async ask(params) {
    try {
      return await get("/_sandbox/entries", { chat: this.place, count: AT_ONCE, ...params });
    } catch (error) {
      this.fail(error);
      return null;
    }
  }

  fill(entries, hasOlder, atEnd) {
    this.entries.clear();
    this.list.replaceChildren();
    this.atEnd = atEnd;
    this.older.hidden = !hasOlder;
    this.newer.hidden = atEnd;
    for (const entry of entries) this.append(entry);
    this.make(this.list.querySelector(".entry:last-child"));
    this.caughtUp();
    if (!atEnd) {
      this.newest.replaceChildren(icon("down"), "Newest");
      this.newest.hidden = false;
    }
    this.takeLate();
  }

  async page(direction) {
    const { asked } = this;
    const numbers = [...this.entries.keys()];
    const isOlder = direction === "older";
    const entries = await this.ask(isOlder ? { before: numbers[0] } : { after: numbers.at(-1) });
    if (!entries || asked !== this.asked) return;
    if (isOlder) {
      const height = this.root.scrollHeight;
      this.prepend(entries);
      this.older.hidden = entries.length < AT_ONCE;
      this.root.scrollTop += this.root.scrollHeight - height;
      this.article(entries.at(-1)?.number)?.focus({ preventScroll: true });
    } else {
      for (const entry of entries) this.append(entry);
      this.atEnd = entries.length < AT_ONCE;
      this.newer.hidden = this.atEnd;
      this.article(entries[0]?.number)?.focus({ preventScroll: true });
    }
  }

  append(entry) {
    const last = this.entries.get(this.last());
    if (!last || dayOf(when(last)) !== dayOf(when(entry))) this.list.append(day(entry));
    this.entries.set(entry.number, entry);
    this.list.append(this.made(entry));
  }

  prepend(entries) {
    const [first] = this.entries.values();
    const made = [];
    let before = null;
    for (const entry of entries) {
      if (!before || dayOf(when(before)) !== dayOf(when(entry))) made.push(day(entry));
      made.push(this.made(entry));
      before = entry;
    }
    const isSameDay = before && first && dayOf(when(before)) === dayOf(when(first));
    if (isSameDay) this.list.querySelector(".day")?.remove();
    this.list.prepend(...made);
    this.entries = new Map([...entries.map((entry) => [entry.number, entry]), ...this.entries]);
  }

  replace(entry) {
    const old = this.article(entry.number);
    const fresh = this.made(entry);
    for (const name of ["shown"]) fresh.classList.toggle(name, old.classList.contains(name));
    const hadFocus = old.contains(document.activeElement);
    const wasCurrent = old.tabIndex === 0;
    this.entries.set(entry.number, entry);
    old.replaceWith(fresh);
    if (wasCurrent) this.make(fresh);
    if (hadFocus) fresh.focus({ preventScroll: true });
  }

  /** Lets go of the oldest, so that a chat that runs for days stays light. */
  trim() {
    while (this.entries.size > MOST) {
      const [number] = this.entries.keys();
      this.entries.delete(number);
      const article = this.article(number);
      const isAlone =
        article.previousElementSibling?.classList.contains("day") &&
        article.nextElementSibling?.classList.contains("day");
      if (isAlone) article.previousElementSibling.remove();
      if (article.tabIndex === 0) this.make(this.list.querySelector(".entry:last-child"));
      article.remove();
      this.older.hidden = false;
    }
  }

  made(entry) {
    const article = show(entry, this.actions);
    article.hidden = this.isFiltered(article);
    setReach(article, false);
    return article;
  }

  isFiltered(article) {
    return this.topic !== "" && article.dataset.topic !== this.topic;
  }

  article(number) {
    return this.list.querySelector(`.entry[data-number="${Number(number)}"]`);
  }

  last() {
    let last = null;
    for (const number of this.entries.keys()) last = number;
    return last;
  }

  isAtBottom() {
    return this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < NEAR_PIXELS;
  }

  caughtUp() {
    this.unseen = 0;
    this.newest.hidden = true;
  }

  pager(label, direction) {
    return button({ class: "small more", hidden: true, on: { click: () => this.page(direction) } }, label);
  }

  // -- the keyboard

  current() {
    return this.list.querySelector('.entry[tabindex="0"]');
  }

  make(article) {
    if (!article || article.tabIndex === 0) return;
    const before = this.current();
    if (before) setReach(before, false);
    setReach(article, true);
  }

  move(event) {
    const article = event.target;
    if (!article.classList?.contains("entry")) return;
    const entry = this.entries.get(Number(article.dataset.number));
    const shown = [...this.list.querySelectorAll(".entry:not([hidden])")];
    const at = shown.indexOf(article);
    const next = {
      ArrowDown: shown[at + 1],
      ArrowUp: shown[at - 1],
      Home: shown[0],
      End: shown.at(-1),
    }[event.key];
    if (next) {
      event.preventDefault();
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.actions.details(entry);
    }
  }
}

function day(entry) {
  return el("div", { class: "day" }, el("span", {}, dayOf(when(entry))));
}

/** Whether the Tab key comes to an entry and to what is in it. */
function setReach(article, isReached) {
  article.tabIndex = isReached ? 0 : -1;
  for (const inner of article.querySelectorAll("button, [role='button'], [role='link'], .source, pre")) {
    inner.tabIndex = isReached ? 0 : -1;
  }
}
