/**
 * The sandbox's page: Telegram as people will see it. It asks for the state once, and from then on is told what
 * changes; what comes in a crowd is shown once for each frame of the screen.
 *
 * Each entry that is shown is told by the event `entry-shown` on the document, with the entry as `detail`.
 */

import { get } from "./parts/api.js";
import { button, copyButton, el, keepingFocus, quiet } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import { isForPage, showKeys } from "./parts/keyboard.js";
import { live } from "./parts/live.js";
import { ChatList } from "./chats.js";
import { Check } from "./check.js";
import { now, setClock } from "./clock.js";
import { Composer } from "./composer.js";
import { Details } from "./details.js";
import { Faults } from "./faults.js";
import { Panel } from "./panel.js";
import { Search } from "./search.js";
import { avatar, subtitleOf, titleOf, topicName, topicOf } from "./shared.js";
import { Thread } from "./thread.js";

const HASH = "#chat/";
const KEYS = [
  ["/", "search"],
  ["↑ ↓", "from chat to chat, from message to message"],
  ["Enter", "open a chat; a message's details"],
  ["m", "to the messages"],
  ["r", "write as a user; on a message, answer it"],
  ["c", "would this pass?"],
  ["f", "faults and floods"],
  ["t", "light or dark"],
  ["Esc", "close the panel; back to the chats"],
  ["?", "this list"],
];

const by = (id) => document.getElementById(id);
const isPhone = matchMedia("(max-width: 720px)");

const list = new ChatList(by("chats"), (place) => go(place, null));
const thread = new Thread(by("thread"), by("newest"), { details: openDetails, fail: trouble });
const composer = new Composer(by("composer"));
const check = new Check();
const details = new Details({ check: tryText, reply: answer });
const faults = new Faults(() => list.chats.get(list.current) ?? null);
const panel = new Panel(
  by("panel"),
  [
    ["details", "Details", details.root],
    ["check", "Would this pass?", check.root],
    ["faults", "Faults", faults.root],
  ],
  panelChanged,
);
const search = new Search(
  by("search"),
  by("found"),
  by("chats"),
  () => list.chats.values(),
  (place, number) => go(place, number),
);

/** Until when a chat is held, by its place: Unix seconds and Telegram's words. */
const holds = new Map();
let waiting = [];
let opening = Promise.resolve();
let topics = new Map();

// -- where we are

function go(place, number) {
  const isThere = list.current === place;
  document.body.dataset.view = "chat";
  if (!isThere) {
    history.replaceState(null, "", `${HASH}${encodeURIComponent(place)}`);
    opening = openChat(place, number);
    return opening;
  }
  list.choose(place);
  if (number !== null) return thread.jump(number);
  thread.toBottom();
  return thread.focus();
}

async function openChat(place, number = null) {
  list.choose(place);
  by("nothing").hidden = true;
  by("chat").hidden = false;
  topics = new Map();
  thread.topic = "";
  head();
  showHold();
  composer.set(list.chats.get(place) ?? { place, id: null });
  // What comes meanwhile is in the answer or told after it.
  await thread.open(place);
  for (const entry of thread.entries.values()) {
    noteTopic(entry);
    noteHold(entry);
  }
  head();
  countHolds();
  if (number !== null) await thread.jump(number);
  else if (isPhone.matches) thread.focus();
}

function head() {
  const chat = list.chats.get(list.current);
  if (!chat) return;
  const back = button(
    { class: "plain back", "aria-label": "Back to the chats", on: { click: backToChats } },
    icon("back"),
  );
  const save = el(
    "a",
    {
      class: "button quiet",
      href: `/_sandbox/export?${new URLSearchParams({ chat: chat.place })}`,
      download: `chat${chat.place}.json`,
      title: "Download this chat as a chats file",
    },
    icon("download"),
    el("span", { class: "label" }, "Fixture"),
  );
  const parts = [
    back,
    avatar(chat),
    el("div", { class: "who" }, el("h2", {}, titleOf(chat)), el("div", { class: "sub" }, subtitleOf(chat))),
    chat.state && chat.state !== "ok" && el("span", { class: "badge bad" }, chat.state),
    topics.size > 0 && topicChoice(chat),
    chat.id !== null && save,
  ];
  keepingFocus(by("head"), () => by("head").replaceChildren(...parts.filter(Boolean)));
}

function topicChoice(chat) {
  const choice = el("select", { "aria-label": "Topic" }, el("option", { value: "" }, "All topics"));
  for (const id of topics.keys())
    choice.append(el("option", { value: String(id) }, id ? `# ${topicName(chat, id)}` : "General"));
  choice.value = thread.topic;
  choice.addEventListener("change", () => thread.filter(choice.value));
  return choice;
}

/** Whether a topic was new. */
function noteTopic(entry) {
  const topic = topicOf(entry);
  if (topics.has(topic) || (!topic && !entry.chat.topics.length && !topics.size)) return false;
  if (!topics.size) {
    topics.set(0, true);
    for (const { id } of entry.chat.topics) topics.set(id, true);
  }
  topics.set(topic, true);
  return true;
}

function backToChats() {
  document.body.dataset.view = "chats";
  (by("chats").querySelector('[aria-current="true"]') ?? by("search")).focus();
}

function nothingYet() {
  const line = `curl ${location.origin}/bot1:x/sendMessage -d chat_id=5 -d text=hello`;
  by("chat").hidden = true;
  by("nothing").hidden = false;
  by("nothing").replaceChildren(
    ...(list.chats.size
      ? [el("h2", {}, "Choose a chat")]
      : [
          el("h2", {}, "Nothing was sent yet"),
          el(
            "p",
            { class: "muted" },
            "This is a Bot API of your own: what is sent to it shows up here as people will see it in Telegram. Nothing leaves this machine.",
          ),
          el("div", { class: "raw", tabindex: "0" }, line),
          copyButton(() => line, "Copy"),
        ]),
  );
}

// -- details, the check, faults

function openDetails(entry) {
  details.show(entry);
  thread.mark(entry.number);
  panel.open("details");
}

function tryText(text, mode) {
  check.set(text, mode);
  panel.open("check");
  by("check-text").focus();
}

function answer(entry) {
  if (isPhone.matches) panel.close();
  composer.answer(entry);
}

function panelChanged(name) {
  for (const [id, shown] of [
    ["open-check", "check"],
    ["open-faults", "faults"],
  ])
    by(id).setAttribute("aria-expanded", String(name === shown));
  if (name !== "details") {
    thread.mark(null);
    details.clear();
  }
}

function trouble(error) {
  by("live").textContent = error.message;
  by("live").className = "badge bad";
}

// -- holds

function noteHold(entry) {
  if (entry.hold) {
    holds.set(entry.place, entry.hold);
  } else if (entry.outcome === "sent") {
    holds.delete(entry.place);
  }
}

function showHold() {
  const held = holds.get(list.current);
  const left = held ? Math.ceil(held.until - now()) : 0;
  by("hold").hidden = left <= 0;
  if (left > 0)
    by("hold").replaceChildren(icon("clock"), el("span", {}, `Held for ${left} s: ${held.words}`));
}

function countHolds() {
  for (const [place, held] of holds) if (held.until <= now()) holds.delete(place);
  list.setHeld(new Set(holds.keys()));
  showHold();
}

// -- what is told

function heard(entry) {
  if (!waiting.length) requestAnimationFrame(showHeard);
  waiting.push(entry);
}

function showHeard() {
  const entries = waiting;
  waiting = [];
  const isRead = (entry) =>
    entry.place === list.current && (!isPhone.matches || document.body.dataset.view === "chat");
  for (const entry of entries) {
    noteHold(entry);
    list.receive(entry, isRead(entry));
  }
  countHolds();
  const here = entries.filter((entry) => entry.place === list.current);
  if (here.length) {
    thread.receive(here);
    if (here.map(noteTopic).some(Boolean)) head();
    const inPanel = here.findLast((entry) => entry.number === details.number);
    if (inPanel) openDetails(inPanel);
  }
  if (entries.some((entry) => entry.calls.at(-1)?.fault)) refresh();
  if (list.current === null && !isPhone.matches) go(entries.at(-1).place, null);
  opening.then(() => {
    for (const entry of entries) document.dispatchEvent(new CustomEvent("entry-shown", { detail: entry }));
  });
}

/** Takes over what is set: chats, faults, flood control, the time. */
function take(state) {
  setClock(state);
  list.set(state.chats);
  for (const { place, newest } of state.chats) if (newest?.hold) holds.set(place, newest.hold);
  faults.set(state);
  const { length } = state.faults;
  by("open-faults").replaceChildren(
    icon("bolt"),
    el("span", { class: "label" }, "Faults"),
    ...(length ? [el("span", { class: "badge bad" }, String(length))] : []),
  );
  const chat = list.chats.get(list.current);
  if (chat) {
    composer.set(chat);
    head();
  }
}

const refresh = quiet(async () => {
  try {
    take(await get("/_sandbox/state"));
  } catch (error) {
    trouble(error);
  }
}, 150);

/** Everything anew: another run of the sandbox, or so much was missed that nobody knows it any more. */
async function startOver() {
  let state;
  try {
    state = await get("/_sandbox/state");
  } catch {
    // It went away again; the stream will say when it is back.
    return;
  }
  holds.clear();
  details.clear();
  take(state);
  show();
  countHolds();
}

function show() {
  const wanted = location.hash.startsWith(HASH) ? decodeURIComponent(location.hash.slice(HASH.length)) : null;
  const [newest] = list.chats.values();
  list.current = null;
  if (wanted !== null && list.chats.has(wanted)) go(wanted, null);
  else if (newest?.newest && !isPhone.matches) go(newest.place, null);
  else {
    document.body.dataset.view = "chats";
    nothingYet();
  }
}

function connected(isThere) {
  by("live").textContent = isThere ? "live" : "reconnecting";
  by("live").className = isThere ? "badge good" : "badge warn";
  if (isThere && thread.failed) opening = openChat(list.current);
}

// -- the keyboard

function pressed(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (panel.isOpen) panel.close();
    else backToChats();
    return;
  }
  if (!isForPage(event)) return;
  const act = {
    "/": () => by("search").focus(),
    m: () => thread.focus(),
    r: reply,
    c: () => panel.toggle("check"),
    f: () => panel.toggle("faults"),
    t: () => by("theme").click(),
    "?": help,
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function reply() {
  const isOnMessage = document.activeElement?.classList.contains("entry");
  const entry = isOnMessage ? thread.chosen() : null;
  if (entry?.message) composer.answer(entry);
  else if (!by("composer").hidden) by("say-text").focus();
}

function help() {
  showKeys(KEYS);
}

// -- the beginning

async function begin() {
  by("open-check").append(icon("check"), el("span", { class: "label" }, "Would this pass?"));
  by("theme").append(icon("moon"));
  by("open-help").append(icon("keys"));
  by("open-check").addEventListener("click", () => panel.toggle("check"));
  by("open-faults").addEventListener("click", () => panel.toggle("faults"));
  by("open-help").addEventListener("click", help);
  document.addEventListener("keydown", pressed);
  setInterval(() => holds.size && countHolds(), 1000);
  const state = await get("/_sandbox/state");
  take(state);
  show();
  countHolds();
  live(
    "/_sandbox/events",
    state.after,
    { hello: setClock, beat: setClock, entry: heard, state: refresh, clear: startOver, reset: startOver },
    connected,
  );
}

begin().catch(trouble);
