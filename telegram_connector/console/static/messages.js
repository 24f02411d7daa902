/** What became of a message and why, by the publisher's id; what was not sent; which message one in a chat is. */

import { button, el, keepingFocus } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import {
  ago,
  badge,
  counted,
  exactly,
  facts,
  failed,
  field,
  head,
  hiddenText,
  moment,
  nothing,
  said,
} from "./shared.js";
import { get, post } from "./session.js";

const HASH = "#messages/";
const NOT_AVAILABLE = "old reply target not available";

export class Messages {
  constructor(bot) {
    this.asked = 0;
    this.view = "unsent";
    this.id = el("input", {
      id: "history-id",
      type: "search",
      placeholder: "order-1234-filled",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "msg_id",
    });
    this.found = el("div", { id: "history", "aria-live": "polite" });
    this.list = el("ul", { class: "letters", id: "records" });
    this.sum = el("p", { class: "muted" });
    this.tabs = el("div", { class: "row", role: "group", "aria-label": "Which records" });
    const form = el(
      "form",
      { class: "find", role: "search" },
      this.id,
      el("button", { type: "submit" }, icon("search"), "Find"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.look(this.id.value.trim());
    });
    this.root = el(
      "section",
      {},
      head("Messages", "What became of a message and why, by the publisher's msg_id."),
      form,
      this.found,
      this.linkForm(bot),
      el("div", { class: "line bulk" }, el("h3", {}, "In the ledger"), this.tabs),
      this.sum,
      this.list,
    );
    this.showTabs();
  }

  open(rest) {
    if (rest) this.look(decodeURIComponent(rest));
    this.refresh();
  }

  changed() {
    return this.refresh();
  }

  showTabs() {
    const made = [
      ["unsent", "Not sent, and why"],
      ["all", "All"],
    ].map(([view, words]) => {
      const tab = button(
        { class: "small", "aria-pressed": String(view === this.view), "data-view": view },
        words,
      );
      tab.addEventListener("click", () => {
        this.view = view;
        keepingFocus(this.tabs, () => this.showTabs());
        this.refresh();
      });
      return tab;
    });
    this.tabs.replaceChildren(...made);
  }

  async refresh() {
    this.asked += 1;
    const { asked, view } = this;
    try {
      const found = await get("records", { view });
      if (asked === this.asked) this.show(found);
    } catch (error) {
      if (asked === this.asked) this.list.replaceChildren(el("li", {}, failed(error)));
    }
  }

  show({ records, count, off, unreadable }) {
    const more = count > records.length ? `; the newest ${records.length} are shown` : "";
    const left = unreadable ? `; ${unreadable} cannot be read by this version` : "";
    this.sum.textContent = off || `${counted(count, "record")}${more}${left}`;
    const made = records.map((record) => el("li", {}, this.row(record)));
    if (!made.length && !off) made.push(el("li", {}, nothing("Nothing", "No record of that kind.")));
    keepingFocus(this.list, () => this.list.replaceChildren(...made));
  }

  row(record) {
    const look = button(
      { class: "summary", "data-key": record.key },
      el("span", { class: "badges" }, state(record)),
      el(
        "span",
        { class: "what" },
        el("strong", {}, record.msg_id),
        el("span", { class: "muted" }, ...said(record.story)),
      ),
      el(
        "span",
        { class: "where muted" },
        record.route_id && el("span", {}, record.route_id),
        ago(record.updated_at),
      ),
    );
    look.addEventListener("click", () => {
      this.look(record.msg_id);
      this.found.scrollIntoView({ block: "nearest" });
    });
    return el("article", { class: "card letter" }, look);
  }

  async look(id) {
    this.id.value = id;
    if (!id) return;
    history.replaceState(null, "", `${HASH}${encodeURIComponent(id)}`);
    this.found.replaceChildren(el("p", { class: "muted" }, "Looking…"));
    try {
      this.found.replaceChildren(told(id, await get("history", { msg_id: id })));
    } catch (error) {
      this.found.replaceChildren(failed(error));
    }
  }

  linkForm(bot) {
    const chat = el("input", { id: "link-chat", placeholder: "-1001234567890", autocomplete: "off" });
    const number = el("input", {
      id: "link-number",
      inputmode: "numeric",
      placeholder: "4711",
      autocomplete: "off",
    });
    const who = el("input", { id: "link-bot", placeholder: "123456", autocomplete: "off" });
    const result = el("div", { id: "link-result", "aria-live": "polite" });
    const form = el(
      "form",
      { class: "filters" },
      field("Chat", chat),
      field("Message in Telegram", number),
      !bot && field("Bot", who, "The number before the colon in its token."),
      el("button", { type: "submit", class: "quiet" }, icon("reply"), "Which one is it?"),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        const found = await post("link", {
          chat: chat.value.trim(),
          message_id: Number(number.value),
          bot: who.value.trim(),
        });
        const look = button({ class: "small" }, found.msg_id);
        look.addEventListener("click", () => this.look(found.msg_id));
        const by = found.from_member ? `, by ${found.from_member}` : "";
        result.replaceChildren(
          el("p", { class: "note good" }, "It is ", look, `${by}, sent ${exactly(found.sent_at)}.`),
        );
      } catch (error) {
        const words =
          error.message === NOT_AVAILABLE
            ? "Old reply target not available: no link is kept, and nothing is guessed."
            : error.message;
        result.replaceChildren(el("p", { class: "note warn" }, words));
      }
    });
    return el(
      "details",
      { class: "card link-form" },
      el("summary", {}, "A user replied to a message: which one of ours is it?"),
      form,
      result,
    );
  }
}

function state(record) {
  if (record.withheld) return badge("withheld", "warn");
  return badge(record.in_doubt ? "send_ambiguous" : record.status);
}

function told(id, { records, letters, links, past, unknown }) {
  const notes = unknown.map((words) => el("p", { class: "note warn" }, words));
  if (!records.length && !letters.length)
    return el(
      "article",
      { class: "card" },
      el("h3", { class: "name" }, id),
      el(
        "p",
        {},
        "Nothing is on record: no connector with TG_LEDGER=kv has met it, or it was forgotten since.",
      ),
      ...notes,
    );
  return el(
    "article",
    { class: "card history" },
    el("h3", { class: "name" }, id),
    ...records.map((record) =>
      el(
        "div",
        { class: "told-record" },
        el("p", { class: "line" }, el("span", { class: "story" }, ...said(record.story)), state(record)),
        facts([
          ["Message", record.name === id ? null : record.name],
          ["Record", [el("code", { title: record.key }, record.key.slice(0, 12))]],
          ["Tries", record.attempts || null],
          [
            "Decision",
            record.visibility_decision_id && [
              el(
                "code",
                { title: record.visibility_decision_id },
                record.visibility_decision_id.slice(0, 12),
              ),
            ],
          ],
          ["Sequence", record.stream_seq],
        ]),
        record.in_doubt &&
          el("p", {}, el("a", { class: "button quiet", href: "#doubt" }, icon("question"), "Settle it")),
        record.stream_seq !== null && hiddenText(`records/${record.key}/body`),
      ),
    ),
    past.length > 0 &&
      el(
        "ol",
        { class: "past" },
        ...past.map(({ at, words, of }) =>
          el("li", { class: `of-${of}` }, moment(at), el("span", {}, ...said(words))),
        ),
      ),
    letters.length > 0 &&
      el("p", {}, el("a", { href: "#dead" }, `${counted(letters.length, "dead letter")} of it`)),
    links.length > 0 &&
      el(
        "p",
        { class: "muted" },
        `In Telegram: ${links.map((link) => link.message_id + (link.stale_at ? " (deleted there)" : "")).join(", ")}`,
      ),
    ...notes,
  );
}
