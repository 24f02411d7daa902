/** What is in doubt, and an operator's word on it. */

import { button, el, keepingFocus } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import {
  ago,
  ask,
  badge,
  counted,
  exactly,
  facts,
  failed,
  field,
  head,
  hiddenText,
  nothing,
  said,
  tell,
} from "./shared.js";
import { get, post } from "./session.js";

const WORDS = [
  {
    how: "sent",
    act: "Mark as sent",
    drawn: "check",
    risk: "You saw it in the chat. If it is not there after all, nobody will ever get it.",
  },
  {
    how: "send-again",
    act: "Send again",
    drawn: "again",
    risk: "You did not see it in the chat. If Telegram has it after all, the chat will show it twice.",
  },
  {
    how: "cancel",
    act: "Cancel it",
    drawn: "close",
    risk: "It does not matter any more. If Telegram does not have it, nobody will ever get it.",
  },
];

export class Doubt {
  constructor() {
    this.asked = 0;
    this.cards = new Map(); // by key: the card of a record, and of which revision
    this.settled = el("ul", { class: "letters", id: "settled", "aria-live": "polite" });
    this.list = el("ul", { class: "letters", id: "doubts" });
    this.root = el(
      "section",
      {},
      head(
        "In doubt",
        "Telegram was asked to send these, and its answer was lost. Look into the chat, then settle each.",
      ),
      this.settled,
      this.list,
    );
  }

  open() {
    this.refresh();
  }

  changed() {
    return this.refresh();
  }

  async refresh() {
    this.asked += 1;
    const { asked } = this;
    try {
      const found = await get("records", { view: "doubt" });
      if (asked === this.asked) this.show(found);
    } catch (error) {
      if (asked === this.asked) this.list.replaceChildren(el("li", {}, failed(error)));
    }
  }

  show({ records, off, count, unreadable }) {
    const made = records.map((record) => {
      const known = this.cards.get(record.key);
      // One that is as it was stays, with what was opened or typed in it.
      if (known?.revision === record.revision) return known.card;
      const card = el("li", {}, this.card(record));
      this.cards.set(record.key, { revision: record.revision, card });
      return card;
    });
    const there = new Set(records.map((record) => record.key));
    for (const key of this.cards.keys()) if (!there.has(key)) this.cards.delete(key);
    if (off)
      made.push(
        el(
          "li",
          {},
          nothing("There is no ledger", `What is in doubt is on record only with TG_LEDGER=kv: ${off}`),
        ),
      );
    else if (!made.length)
      made.push(el("li", {}, nothing("Nothing is in doubt", "What was sent is known to be sent.")));
    if (count > records.length)
      made.push(el("li", { class: "muted" }, `${counted(count - records.length, "older one")} after these.`));
    if (unreadable)
      made.push(
        el("li", { class: "note warn" }, `${counted(unreadable, "record")} cannot be read by this version.`),
      );
    keepingFocus(this.list, () => this.list.replaceChildren(...made));
  }

  card(record) {
    const known = el("div", {}, knownOf(record, {}));
    get(`records/${record.key}`)
      .then((about) => known.replaceChildren(knownOf(record, about)))
      .catch((error) => known.append(failed(error)));
    const words = record.to_finish ? this.finish(record) : WORDS.map((word) => this.word(record, word));
    return el(
      "article",
      { class: "card doubtful", "data-key": record.key },
      el(
        "div",
        { class: "line" },
        el("h3", { class: "name" }, record.msg_id),
        record.to_finish ? badge("settled, not finished", "warn") : badge("send_ambiguous"),
      ),
      el("p", {}, ...said(record.story)),
      known,
      hiddenText(`records/${record.key}/body`),
      el("ul", { class: "words" }, ...words.map((one) => el("li", {}, one))),
    );
  }

  word(record, { how, act, drawn, risk }) {
    const press = button({ class: "quiet", "data-how": how }, icon(drawn), act);
    press.addEventListener("click", () => this.say(record, how, act, risk));
    return el("div", { class: "word" }, press, el("p", { class: "muted" }, risk));
  }

  finish(record) {
    const how = record.to_finish;
    const [act, risk] =
      how === "send-again"
        ? ["Publish once more", "It may be published already; a copy too many is not sent."]
        : ["Store its link", "Replies to it cannot be told without."];
    return [this.word(record, { how, act, drawn: "again", risk })];
  }

  async say(record, how, act, risk) {
    const id = el("input", { id: "message-id", inputmode: "numeric", autocomplete: "off" });
    const chat = el("input", { id: "message-chat", autocomplete: "off" });
    const isSent = how === "sent" && !record.to_finish;
    const result = await ask(
      {
        title: `${act}?`,
        act,
        harm: how === "send-again" && !record.to_finish,
        body: [
          el(
            "p",
            {},
            el("strong", {}, record.msg_id),
            `, in doubt since ${exactly(record.ambiguous_since ?? record.updated_at)}.`,
          ),
          el("p", { class: how === "send-again" && !record.to_finish ? "note bad" : "note warn" }, risk),
          isSent && field("Its number in Telegram, if you know it", id, "Replies to it can be told then."),
          isSent && field("The chat's decimal id", chat, "Only where it was sent to a @name."),
        ].filter(Boolean),
      },
      async () => {
        const word = { how, revision: record.revision };
        if (isSent && id.value.trim())
          Object.assign(word, { message_id: Number(id.value), chat: chat.value.trim() });
        else if (record.to_finish === "sent") word.message_id = record.message_id;
        try {
          return { kind: "good", words: (await post(`records/${record.key}/settle`, word)).words };
        } catch (error) {
          // Whatever else it is, the operator may mend it and say it again.
          if (error.kind !== "overtaken") throw error;
          return { kind: "warn", words: error.message };
        }
      },
    );
    if (!result) return;
    this.settled.prepend(
      el(
        "li",
        { class: `note ${result.kind}`, "data-key": record.key },
        el("strong", {}, `${record.msg_id}: `),
        ...said(result.words.replace(`${record.name}: `, "")),
      ),
    );
    if (result.kind === "warn") tell(`${record.msg_id}: somebody else was first`, "warn");
    this.refresh();
  }
}

function knownOf(record, { there = true, chat, kind, expires_at: expires }) {
  return facts(
    [
      ["Chat", chat],
      ["Since", [ago(record.ambiguous_since ?? record.updated_at)]],
      ["Tries", record.attempts],
      ["Kind", kind],
      ["Route", record.route_id],
      ["By", record.from_member],
      ["Topic", record.message_thread_id],
      ["Part", record.part && `${record.part} of ${record.parts}`],
      ["Expires", expires && exactly(expires)],
      ["Sequence", record.stream_seq],
      ["Record", [el("code", { title: record.key }, record.key.slice(0, 12))]],
      ["Original", there ? null : "in the streams no more: it cannot be sent again from here"],
    ],
    "across",
  );
}
