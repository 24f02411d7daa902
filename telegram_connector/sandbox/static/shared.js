/** What several parts of the page show alike: chats, times, the words for what became of a call. */

import { el } from "./parts/dom.js";

const FAILED = new Set(["refused", "unanswered"]);

/** Kind of an outcome, for its colour: "bad", "warn" or "". */
export function tone(outcome) {
  if (FAILED.has(outcome)) return "bad";
  return outcome === "held" || outcome === "unclear" ? "warn" : "";
}

/** What became of an entry, in a sentence: Telegram's own words where it said something. */
export function words(entry) {
  const call = entry.message ? entry.calls[0] : entry.calls.at(-1);
  switch (entry.outcome) {
    case "refused":
    case "held":
      return `${call.status} ${call.description || "(no words of the Bot API)"}`;
    case "unanswered":
      return "No answer: the connection broke, and nothing was sent";
    case "unclear":
      return `Sent, but the caller does not know: ${unclear(call)}`;
    default:
      return "";
  }
}

function unclear(call) {
  if (call.status === null) return "no answer came";
  if (call.status === 200) return "half of the answer came";
  return `the answer was ${call.status} ${call.description}`.trim();
}

/** "refused", "held" … before the snippet of a chat's last entry. */
export function prefix(outcome) {
  return (
    { refused: "Refused: ", held: "Held: ", unanswered: "No answer: ", unclear: "Unclear: ", heard: "You: " }[
      outcome
    ] ?? ""
  );
}

/** The round thing with initials. */
export function avatar(chat) {
  if (chat.id === null) return el("span", { class: "avatar none", "aria-hidden": "true" }, "?");
  const initials = chat.title
    .split(/\s+/)
    .map((word) => [...word].find((character) => /[\p{L}\p{N}]/u.test(character)))
    .filter(Boolean);
  const shown = [initials[0], initials.length > 1 ? initials.at(-1) : ""].join("").toUpperCase();
  return el("span", { class: `avatar c${Math.abs(chat.id) % 7}`, "aria-hidden": "true" }, shown || "#");
}

/** What a place is called: a chat's title, or what was asked for. */
export function titleOf(chat) {
  if (chat.type) return chat.title;
  return chat.place === "" ? "Calls without a chat" : chat.place;
}

/** The line under a chat's title. */
export function subtitleOf(chat) {
  if (!chat.type) return chat.place === "" ? "no chat_id was given" : "no such chat";
  return [chat.type, chat.username && `@${chat.username}`, chat.id].filter(Boolean).join(" · ");
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const PRECISE = new Intl.DateTimeFormat(undefined, {
  timeStyle: "medium",
  dateStyle: "medium",
  hourCycle: "h23",
});
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });

/** Hours and minutes of Unix seconds. */
export const timeOf = (seconds) => TIME.format(seconds * 1000);

/** Date and time of Unix seconds. */
export const momentOf = (seconds) => PRECISE.format(seconds * 1000);

/** The day of Unix seconds. */
export const dayOf = (seconds) => DAY.format(seconds * 1000);

/** When an entry was made, in Unix seconds. */
export const when = (entry) => entry.message?.date ?? entry.calls.at(-1).at;

/** The text of an entry as it was sent, and its parse mode. */
export function sentText(entry) {
  if (entry.message) return { text: entry.message.raw_text, mode: entry.message.parse_mode };
  const { params } = entry.calls.at(-1);
  return { text: params.text ?? "", mode: params.parse_mode ?? "" };
}

/** The topic of an entry, 0 for none. */
export function topicOf(entry) {
  return entry.message
    ? (entry.message.topic ?? 0)
    : Number(entry.calls.at(-1).params.message_thread_id ?? 0);
}

/** What a topic is called. */
export function topicName(chat, id) {
  return chat.topics.find((topic) => topic.id === id)?.name ?? `topic ${id}`;
}
