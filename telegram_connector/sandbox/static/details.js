/** A message in full: what became of it, what Telegram lost of it, and the raw requests and answers. */

import { get } from "./parts/api.js";
import { button, copyButton, el } from "./parts/dom.js";
import { source } from "./parts/source.js";
import { momentOf, sentText, tone, topicName, topicOf, when, words } from "./shared.js";

export class Details {
  /** @param {{check: function(string, string), reply: function(Object)}} actions */
  constructor(actions) {
    this.actions = actions;
    this.root = el("div", {});
    this.number = null;
    this.clear();
  }

  clear() {
    this.number = null;
    this.root.replaceChildren(
      el("p", { class: "muted" }, "Choose a message's details to see its raw request and answer here."),
    );
  }

  /** Shows an entry; its raw calls follow. */
  async show(entry) {
    this.number = entry.number;
    const calls = el("section", {}, el("h3", {}, "Raw calls"), el("p", { class: "muted" }, "Loading …"));
    this.root.replaceChildren(
      ...this.summary(entry),
      entry.count > 0 ? calls : el("p", { class: "muted" }, "A person wrote this: there is no call."),
    );
    if (!entry.count) return;
    let shown;
    try {
      const raw = await get("/_sandbox/raw", { number: entry.number });
      shown = raw.calls.map((call, index) => rawCall(call, index === raw.calls.length - 1));
      if (entry.count > raw.calls.length)
        shown.unshift(
          el("p", { class: "muted" }, `${entry.count} calls; the first one and the last ones are kept.`),
        );
    } catch (error) {
      shown = [el("p", { class: "note bad" }, error.message)];
    }
    if (this.number === entry.number) calls.replaceChildren(el("h3", {}, "Raw calls"), ...shown);
  }

  summary(entry) {
    const { message } = entry;
    const { text, mode } = sentText(entry);
    const lost = entry.warnings ?? [];
    const spots = message ? lost : [{ position: entry.position, words: words(entry) }];
    const links = (message?.entities ?? []).filter((entity) => entity.url);
    const said = words(entry);
    return [
      said && el("p", { class: `note ${tone(entry.outcome)}` }, said),
      el("dl", {}, ...facts(entry, mode)),
      lost.length > 0 &&
        el(
          "section",
          {},
          el("h3", {}, "Lost or changed without a word"),
          el("ul", { class: "problems" }, ...lost.map((one) => el("li", {}, one.words))),
        ),
      text &&
        el("section", {}, el("h3", {}, "As it was sent"), source(text, spots, message ? "warning" : "fault")),
      links.length > 0 &&
        el(
          "section",
          {},
          el("h3", {}, "Links"),
          el("ul", {}, ...links.map((link) => el("li", { class: "raw" }, link.url))),
        ),
      message?.edits.length > 0 &&
        el(
          "section",
          {},
          el("h3", {}, "Before it was edited"),
          ...message.edits.map((before) => source(before)),
        ),
      el(
        "p",
        { class: "row" },
        text &&
          button({ class: "small", on: { click: () => this.actions.check(text, mode) } }, "Try this text"),
        message &&
          !message.deleted &&
          button({ class: "small", on: { click: () => this.actions.reply(entry) } }, "Reply as a user"),
      ),
    ].filter(Boolean);
  }
}

function facts(entry, mode) {
  const { message } = entry;
  const call = entry.calls.at(-1);
  const topic = topicOf(entry);
  const rows = [
    ["When", momentOf(when(entry))],
    message && ["Message id", message.message_id],
    topic > 0 && ["Topic", topicName(entry.chat, topic)],
    ["Parse mode", mode || "none"],
    message && [
      "Length",
      `${[...message.text].length} of 4096 characters, ${message.entities.length} entities`,
    ],
    message?.silent && ["Sound", "silent"],
    call?.fault && ["Fault rule", call.fault],
    call?.retry_after && ["Retry after", `${call.retry_after} s`],
    entry.count > 1 && ["Calls", entry.count],
  ];
  return rows.filter(Boolean).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]);
}

function rawCall(call, isOpen) {
  // The token is not kept, so it is shown as a word.
  const head = [
    `${call.verb} /bot${call.bot_id}:<token>/${call.method}`,
    ...Object.entries(call.headers).map(([name, value]) => `${name}: ${value}`),
  ];
  const request = [...head, "", pretty(call.body)].join("\n");
  const answer = pretty(call.answer);
  return el(
    "details",
    { open: isOpen },
    el("summary", {}, `${call.method} → ${call.status ?? "no answer"}`),
    el("div", { class: "raw request", tabindex: "0" }, request),
    el(
      "div",
      { class: "raw answer", tabindex: "0" },
      `${call.status === null ? "No answer was sent." : `HTTP ${call.status}`}\n\n${answer}`.trim(),
    ),
    el(
      "p",
      { class: "row" },
      copyButton(() => request, "Copy the request"),
      copyButton(() => answer, "Copy the answer"),
    ),
  );
}

function pretty(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
