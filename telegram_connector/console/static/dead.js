/** Dead letters: looked at, resent, discarded, one by one or many. */

import { button, el, keepingFocus, quiet } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import {
  ago,
  ask,
  badge,
  busy,
  choice,
  counted,
  exactly,
  facts,
  failed,
  field,
  head,
  hiddenText,
  nothing,
  tell,
} from "./shared.js";
import { get, post } from "./session.js";

const REASONS = [
  ["", "every reason"],
  ["refused", "refused"],
  ["unreadable", "unreadable"],
  ["gave_up", "gave up"],
  ["ambiguous", "in doubt"],
  ["expired", "expired"],
  ["conflict", "conflict"],
];
const AGES = [
  ["", "all the time"],
  ["15m", "15 minutes"],
  ["2h", "2 hours"],
  ["1d", "a day"],
  ["1w", "a week"],
];
const AT_ONCE = 25;

export class Dead {
  constructor() {
    this.asked = 0;
    this.count = null;
    this.opened = new Map(); // by number: the details that are open
    this.reason = choice("dead-reason", REASONS);
    this.chat = el("input", {
      id: "dead-chat",
      list: "dead-chats",
      placeholder: "every chat",
      autocomplete: "off",
    });
    this.chats = el("datalist", { id: "dead-chats" });
    this.age = choice("dead-age", AGES);
    this.msgId = el("input", { id: "dead-msg-id", placeholder: "every msg_id", autocomplete: "off" });
    this.everything = el("input", { type: "checkbox", id: "dead-everything" });
    this.sum = el("p", { class: "muted", id: "dead-sum", "aria-live": "polite" });
    this.resendAll = button(
      { class: "quiet", id: "resend-all", disabled: true },
      icon("again"),
      "Resend all…",
    );
    this.discardAll = button(
      { class: "quiet", id: "discard-all", disabled: true },
      icon("trash"),
      "Discard all…",
    );
    this.list = el("ul", { class: "letters", id: "letters" });
    this.root = el(
      "section",
      {},
      head("Dead letters", "What could not be delivered, kept for 30 days. Texts are hidden."),
      el(
        "form",
        { class: "filters" },
        field("Reason", this.reason),
        field("Chat", this.chat),
        field("Since", this.age),
        field("msg_id", this.msgId),
        el("label", { class: "check" }, this.everything, "Discarded, too"),
        this.chats,
      ),
      el(
        "div",
        { class: "line bulk" },
        this.sum,
        el("div", { class: "row" }, this.resendAll, this.discardAll),
      ),
      this.list,
    );
    const again = quiet(() => this.refresh(), 200);
    this.root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    for (const input of [this.reason, this.chat, this.age, this.msgId, this.everything])
      input.addEventListener("input", again);
    this.resendAll.addEventListener("click", () => this.many("resend"));
    this.discardAll.addEventListener("click", () => this.many("discard"));
  }

  open() {
    this.refresh();
  }

  changed() {
    return this.refresh();
  }

  query() {
    return {
      reasons: this.reason.value ? [this.reason.value] : [],
      chat: this.chat.value.trim(),
      msg_id: this.msgId.value.trim(),
      newer_than: this.age.value,
      everything: this.everything.checked,
    };
  }

  async refresh() {
    this.asked += 1;
    const { asked } = this;
    let found;
    try {
      found = await post("dead/list", this.query());
    } catch (error) {
      if (asked === this.asked) this.list.replaceChildren(el("li", {}, failed(error)));
      return;
    }
    if (asked !== this.asked) return;
    this.show(found);
  }

  show({ letters, count, statuses, chats }) {
    this.count = count;
    const open = letters.filter((one) => one.status === "open" && one.reason !== "ambiguous").length;
    const more = count > letters.length ? `; the newest ${letters.length} are shown` : "";
    const states = Object.entries(statuses).filter(([name]) => name !== "open");
    const said = states.map(([name, number]) => `${number} ${name}`).join(", ");
    this.sum.textContent = `${counted(count, "letter")}${said ? ` (${said})` : ""}${more}`;
    this.resendAll.disabled = !open && !more;
    this.discardAll.disabled = !count;
    this.chats.replaceChildren(...chats.map((chat) => el("option", { value: chat })));
    const there = new Set(letters.map((one) => one.seq));
    for (const seq of this.opened.keys()) if (!there.has(seq)) this.opened.delete(seq);
    const made = letters.map((one) => el("li", {}, this.row(one)));
    if (!made.length)
      made.push(el("li", {}, nothing("No dead letters", "Nothing that these filters hold for.")));
    keepingFocus(this.list, () => this.list.replaceChildren(...made));
  }

  row(letter) {
    const { seq } = letter;
    const details =
      this.opened.get(seq) ?? el("div", { class: "details", id: `letter-${seq}`, hidden: true });
    const summary = button(
      {
        class: "summary",
        "aria-expanded": String(!details.hidden),
        "aria-controls": `letter-${seq}`,
        "data-seq": seq,
      },
      el("span", { class: "badges" }, badge(letter.reason), letter.status !== "open" && badge(letter.status)),
      el(
        "span",
        { class: "what" },
        el("strong", {}, letter.msg_id ?? "no msg_id"),
        el("span", { class: "muted" }, letter.description),
      ),
      el("span", { class: "where muted" }, el("span", {}, letter.chat), ago(letter.dead_at)),
    );
    summary.addEventListener("click", () => {
      const isOpen = summary.getAttribute("aria-expanded") === "true";
      summary.setAttribute("aria-expanded", String(!isOpen));
      details.hidden = isOpen;
      if (isOpen) this.opened.delete(seq);
      else {
        this.opened.set(seq, details);
        this.fill(details, letter);
      }
    });
    if (this.opened.has(seq) && details.dataset.revision !== String(letter.revision))
      this.fill(details, letter);
    return el("article", { class: "card letter" }, summary, details);
  }

  async fill(details, letter) {
    details.dataset.revision = letter.revision;
    try {
      const full = await get(`dead/${letter.seq}`);
      details.replaceChildren(...this.inFull(full));
    } catch (error) {
      details.replaceChildren(failed(error));
    }
  }

  inFull(letter) {
    const code = letter.error_code ? `${letter.error_code} ` : "";
    return [
      el("p", { class: "advice" }, el("strong", {}, letter.what), ` ${letter.todo}`),
      facts([
        ["In Telegram's words", letter.description && `${code}${letter.description}`],
        ["Number", letter.seq],
        ["Chat", letter.chat],
        ["Kind", letter.kind],
        ["Tries", letter.attempts],
        ["Dead since", exactly(letter.dead_at)],
        ["Sequence of the original", letter.stream_seq],
        ["Size", `${letter.bytes.toLocaleString("en")} bytes`],
        ["What was done", letter.by && done(letter)],
      ]),
      hiddenText(`dead/${letter.seq}/body`),
      el(
        "details",
        { class: "headers" },
        el("summary", {}, `Headers (${letter.headers.length})`),
        facts(letter.headers),
      ),
      el("div", { class: "row acts" }, ...this.acts(letter)),
    ];
  }

  acts(letter) {
    const again = letter.status !== "open" && letter.status !== "claimed";
    if (letter.reason === "ambiguous" && letter.status === "open")
      return [
        el("a", { class: "button", href: "#doubt" }, icon("question"), "Settle it"),
        this.discardButton(letter),
      ];
    const word = again ? "Resend again" : "Resend";
    const resend = button({ class: again ? "quiet" : "" }, icon("again"), word);
    const plain = button({ class: "quiet" }, icon("text"), `${word} as plain text`);
    const elsewhere = button({ class: "quiet" }, icon("send"), "To another chat…");
    resend.addEventListener("click", () => this.resend(letter, { again }));
    plain.addEventListener("click", () => this.resend(letter, { again, plain: true }));
    elsewhere.addEventListener("click", () => this.elsewhere(letter, again));
    return letter.reason === "ambiguous"
      ? [this.discardButton(letter)]
      : [resend, plain, elsewhere, this.discardButton(letter)];
  }

  discardButton(letter) {
    const made = button({ class: "quiet" }, icon("trash"), "Discard…");
    made.addEventListener("click", () => this.discard(letter));
    return made;
  }

  resend(letter, treatment, body = []) {
    const how = treatment.plain ? " as the plain text of its markup" : "";
    const risk = treatment.again
      ? `It was ${letter.status} by ${letter.by} already: this sends another copy.`
      : "The copy has an id of its own, and is sent once, whoever else is at it.";
    return ask(
      {
        title: treatment.again ? "Resend again?" : "Resend?",
        act: treatment.again ? "Send another copy" : "Resend",
        harm: Boolean(treatment.again),
        body: [
          el(
            "p",
            {},
            el("strong", {}, letter.msg_id ?? `letter ${letter.seq}`),
            ` is published anew${how}. ${risk}`,
          ),
          ...body,
        ],
      },
      () => this.one(letter, { act: "resend", ...treatment }),
    );
  }

  elsewhere(letter, again) {
    const chat = el("input", {
      id: "other-chat",
      placeholder: "-1001234567890 or @name",
      required: true,
      autocomplete: "off",
    });
    const plain = el("input", { type: "checkbox" });
    return ask(
      {
        title: "Send to another chat",
        act: "Resend there",
        harm: again,
        body: [
          field("Chat", chat, "Topic and message replied to have no meaning there and are left out."),
          el("label", { class: "check" }, plain, "As plain text"),
        ],
      },
      () => this.one(letter, { act: "resend", chat: chat.value.trim(), plain: plain.checked, again }),
    );
  }

  discard(letter) {
    const { why, purge, body } = discarding();
    return ask(
      {
        title: "Discard?",
        act: "Discard",
        harm: true,
        body: [
          el(
            "p",
            {},
            el("strong", {}, letter.msg_id ?? `letter ${letter.seq}`),
            " is put aside: neither listed nor resent any more.",
          ),
          ...body,
        ],
      },
      () => this.one(letter, { act: "discard", why: why.value.trim(), purge: purge.checked }),
    );
  }

  /** Treats one letter, and tells what became of it. */
  async one(letter, treatment) {
    const { done: all } = await post("dead/treat", { letters: [named(letter)], treatment });
    const [{ outcome, words }] = all;
    if (outcome === "refused") throw new Error(words);
    tell(
      `${letter.msg_id ?? letter.seq}: ${words}`,
      outcome === "done" || outcome === "before" ? "good" : "warn",
    );
    this.refresh();
    return true;
  }

  /** Treats all that the filters hold for, after their count was typed. */
  async many(act) {
    const plain = el("input", { type: "checkbox", id: "many-plain" });
    const { why, purge, body } = discarding();
    let plan;
    try {
      plan = await post("dead/plan", { query: this.query(), treatment: { act } });
    } catch (error) {
      tell(error.message, "bad");
      return;
    }
    const { ready, more, against } = plan;
    const progress = el("progress", {
      max: ready.length,
      value: 0,
      hidden: true,
      "aria-label": "How many are done",
    });
    const isResend = act === "resend";
    if (!ready.length) {
      tell(against.map((one) => `${one.count}: ${one.why}`).join("; ") || "there is nothing to do", "warn");
      return;
    }
    await ask(
      {
        title: isResend
          ? `Resend ${counted(ready.length, "letter")}?`
          : `Discard ${counted(ready.length, "letter")}?`,
        act: isResend
          ? `Resend ${ready.length.toLocaleString("en")}`
          : `Discard ${ready.length.toLocaleString("en")}`,
        harm: !isResend,
        count: ready.length,
        body: [
          el(
            "p",
            {},
            isResend
              ? "One by one, in the order of their death, each copy once."
              : "They are put aside: neither listed nor resent any more.",
          ),
          more > 0 &&
            el("p", { class: "note warn" }, `${counted(more, "more letter")} are left for another time.`),
          against.length > 0 &&
            el(
              "div",
              { class: "note warn" },
              el("p", {}, "Not these:"),
              el(
                "ul",
                { class: "bullets" },
                ...against.map((one) => el("li", {}, `${one.count}: ${one.why}`)),
              ),
            ),
          ...(isResend
            ? [el("label", { class: "check" }, plain, "As plain text, without a parse mode")]
            : body),
          progress,
        ].filter(Boolean),
      },
      () =>
        this.each(
          ready,
          isResend ? { act, plain: plain.checked } : { act, why: why.value.trim(), purge: purge.checked },
          progress,
        ),
    );
    this.refresh();
  }

  /** In portions, so that none takes long. What was done stays so where one fails; doing it again goes on. */
  async each(ready, treatment, progress) {
    const counts = {};
    const refused = [];
    progress.hidden = false;
    for (let at = 0; at < ready.length; at += AT_ONCE) {
      const { done: all } = await post("dead/treat", { letters: ready.slice(at, at + AT_ONCE), treatment });
      for (const { seq, outcome, words } of all) {
        counts[outcome] = (counts[outcome] ?? 0) + 1;
        if (outcome === "refused") refused.push(`${seq}: ${words}`);
      }
      progress.value = at + all.length;
      if (!progress.isConnected) break; // the question was closed: the rest is left
    }
    const words = Object.entries(counts).map(([name, count]) => `${count} ${OUTCOMES[name]}`);
    tell(words.join(", "), refused.length ? "warn" : "good");
    if (refused.length) tell(refused.slice(0, 5).join("; "), "bad");
    return true;
  }
}

const OUTCOMES = {
  done: "done",
  before: "were sent already",
  left: "left alone",
  refused: "refused",
  gone: "gone meanwhile",
};

function named({ seq, stored_at: storedAt, revision }) {
  return { seq, stored_at: storedAt, revision };
}

function done({ status, by, at, why, resent_as: copy }) {
  const as = copy && status !== "discarded" ? ` as ${copy}` : "";
  return `${status}${as} by ${by}, ${exactly(at)}${why ? `: ${why}` : ""}`;
}

function discarding() {
  const why = el("input", { id: "discard-why", maxlength: "200", autocomplete: "off" });
  const purge = el("input", { type: "checkbox", id: "discard-purge" });
  const body = [
    field("Why", why, "For the record."),
    el(
      "label",
      { class: "check" },
      purge,
      "Delete for good (wants a NATS right that operators usually lack)",
    ),
  ];
  return { why, purge, body };
}
