/** One entry of a chat: a message, or a call that was refused, in red and with Telegram's words. */

import { button, el } from "./parts/dom.js";
import { render } from "./parts/entities.js";
import { icon } from "./parts/icons.js";
import { source } from "./parts/source.js";
import { momentOf, sentText, timeOf, tone, topicName, topicOf, when, words } from "./shared.js";

/**
 * @param {Object} entry
 * @param {{jump: function(Object), details: function(Object)}} actions
 */
export function show(entry, { jump, details }) {
  const { message } = entry;
  const { text } = sentText(entry);
  const topic = topicOf(entry);
  const bubble = el(
    "div",
    {
      class: `bubble ${entry.outcome === "heard" ? "own" : ""} ${tone(entry.outcome) && entry.outcome} ${message?.deleted ? "deleted" : ""}`,
    },
    (message || topic > 0) &&
      el(
        "div",
        { class: "from" },
        el("span", { class: "author" }, message?.author ?? ""),
        topic > 0 && el("span", { class: "badge topic" }, `# ${topicName(entry.chat, topic)}`),
      ),
    quoted(entry, jump),
    said(entry),
    message && el("div", { class: "text", dir: "auto" }, render(message.text, message.entities)),
    !message && text && source(text, [{ position: entry.position, words: words(entry) }]),
    marks(entry, () => details(entry)),
  );
  const label = [message ? message.author : "A call that was refused", timeOf(when(entry)), words(entry)]
    .filter(Boolean)
    .join(", ");
  return el(
    "article",
    {
      class: `entry ${entry.outcome}`,
      "data-number": entry.number,
      "data-topic": topic,
      tabindex: "-1",
      "aria-label": label,
    },
    bubble,
  );
}

/** What was said to the caller, unless all is well. */
function said(entry) {
  const sentence = words(entry);
  if (!sentence) return null;
  const drawn = { refused: "close", unanswered: "cut", held: "clock", unclear: "warning" }[entry.outcome];
  return el("div", { class: "words" }, icon(drawn), el("span", {}, sentence));
}

function quoted(entry, jump) {
  const reply = entry.message ? entry.message.reply : entry.reply;
  if (!reply) return null;
  const who = el("span", { class: "who" }, reply.author || `Message ${reply.message_id}`);
  const attributes = {
    class: "quote",
    title: "Go to that message",
    disabled: reply.number === null,
    on: { click: () => jump(reply) },
  };
  return button(attributes, who, el("span", {}, reply.text));
}

function marks(entry, details) {
  const { message } = entry;
  const call = entry.calls.at(-1);
  const lost = entry.warnings?.length ?? 0;
  const open = button(
    {
      class: "plain details",
      title: "Details: the raw request and answer",
      "aria-label": "Details",
      on: { click: details },
    },
    icon("info"),
    tone(entry.outcome) && "Details",
  );
  return el(
    "div",
    { class: "marks" },
    !message && call.method !== "sendMessage" && el("span", {}, call.method),
    entry.count > 1 && !message && el("span", { class: "times" }, `${entry.count} times`),
    call?.fault && el("span", {}, icon("bug"), ` ${call.fault}`),
    lost > 0 &&
      el("span", { class: "warned" }, icon("warning"), ` ${lost} ${lost > 1 ? "warnings" : "warning"}`),
    message?.silent && el("span", { title: "sent without a sound" }, icon("silent"), " silent"),
    message?.deleted && el("span", {}, "deleted"),
    message?.edits.length > 0 && el("span", { class: "edited" }, "edited"),
    el("time", { title: momentOf(when(entry)) }, timeOf(when(entry))),
    open,
  );
}
