/** The operator's page: one view at a time, told of changes while it is open. */

import { el } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import { isForPage, showKeys } from "./parts/keyboard.js";
import { live } from "./parts/live.js";
import { Activity } from "./activity.js";
import { Dead } from "./dead.js";
import { Doubt } from "./doubt.js";
import { showLogin } from "./login.js";
import { Messages } from "./messages.js";
import { Overview } from "./overview.js";
import { Preview } from "./preview.js";
import { get, onGone, post, session } from "./session.js";
import { failed } from "./shared.js";

const VIEWS = [
  ["overview", "Overview", "gauge"],
  ["dead", "Dead letters", "mail"],
  ["doubt", "In doubt", "question"],
  ["messages", "Messages", "search"],
  ["preview", "Preview", "eye"],
  ["activity", "Activity", "list"],
];
const KEYS = [
  ["1 … 6", "the views, from left to right"],
  ["/", "find a message by its msg_id"],
  ["p", "pause"],
  ["t", "light or dark"],
  ["Esc", "close a question"],
  ["?", "this list"],
];

const by = (id) => document.getElementById(id);

let views = null;
let current = "";
let picture = null;
let isConnected = false;
let isListening = false;
let isStale = false;
let isAsking = false;

// -- views

function go() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const wanted = views[name] ? name : "overview";
  const isNew = wanted !== current;
  current = wanted;
  if (isNew) by("view").replaceChildren(views[current].root);
  for (const link of by("nav").querySelectorAll("a"))
    if (link.dataset.view === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  document.title = `${VIEWS.find(([view]) => view === current)[1]} — Telegram console`;
  views[current].open(rest.join("/"));
  if (picture) views[current].picture?.(picture);
  if (isNew) scrollTo(0, 0);
}

function showNav() {
  by("nav").replaceChildren(
    ...VIEWS.map(([view, words, drawn]) =>
      el(
        "a",
        { href: `#${view}`, "data-view": view },
        icon(drawn),
        el("span", {}, words),
        el("span", { class: "badge", id: `count-${view}`, hidden: true }),
      ),
    ),
  );
}

function count(view, number, kind) {
  const shown = by(`count-${view}`);
  shown.hidden = !number;
  shown.textContent = number ?? "";
  shown.className = `badge ${kind}`;
}

// -- what is told

/** Has the view ask anew. A server that is slow to answer, or changes that come in a crowd, are given time. */
async function changed() {
  isStale = true;
  if (isAsking) return;
  isAsking = true;
  try {
    while (isStale) {
      isStale = false;
      const began = performance.now();
      await views[current]?.changed?.();
      await rest(Math.max(200, 5 * (performance.now() - began)));
    }
  } finally {
    isAsking = false; // also where a view could not: the next change asks again
  }
}

const rest = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function heard(told) {
  const before = picture;
  picture = told;
  showLive();
  const { overview, trouble, setting } = told;
  by("trouble").hidden = !trouble;
  by("trouble").textContent = trouble
    ? `NATS: ${trouble}${setting ? ` (${setting})` : ""}. Trying again all the time.`
    : "";
  if (overview) {
    count("doubt", overview.ambiguous, "warn");
    count("dead", overview.dead_letters?.count, "");
  }
  views[current]?.picture?.(told);
  if (before && fingerprint(before) !== fingerprint(told)) changed();
}

/** What other views show changes with this. */
function fingerprint({ overview, acted, trouble }) {
  const dead = overview?.dead_letters;
  return JSON.stringify([
    acted,
    Boolean(trouble),
    dead?.count,
    dead?.by_reason,
    overview?.ambiguous,
    overview?.outstanding?.count,
  ]);
}

function showLive() {
  const [kind, words] = !isConnected
    ? ["warn", "reconnecting"]
    : picture?.trouble
      ? ["bad", "NATS away"]
      : picture
        ? ["good", "live"]
        : ["", "connecting"];
  by("live").className = `badge ${kind}`;
  by("live").textContent = words;
}

async function connected(isThere) {
  isConnected = isThere;
  showLive();
  try {
    const found = await session();
    if (found.login && !found.who) leave();
  } catch {
    // It went away; the stream will say when it is back.
  }
}

// -- who

function leave() {
  if (by("console").hidden) return;
  by("console").hidden = true;
  document.querySelector("dialog[open]")?.close();
  // What is shown is nobody's any more.
  by("view").replaceChildren();
  current = "";
  showLogin(by("login"), enter);
}

async function enter() {
  const start = await get("start");
  const { login } = await session();
  views = {
    overview: new Overview(),
    dead: new Dead(),
    doubt: new Doubt(),
    messages: new Messages(start.bot),
    preview: new Preview(start.offers),
    activity: new Activity(),
  };
  by("login").hidden = true;
  by("console").hidden = false;
  by("logout").hidden = !login;
  by("about").replaceChildren(
    el("div", { title: "stream / consumer" }, `${start.stream} / ${start.durable}`),
    el("div", {}, start.who),
  );
  showNav();
  go();
  if (!isListening) {
    isListening = true;
    live("/api/events", "", { picture: heard, beat: () => {}, ended: leave }, connected);
  }
}

async function logout() {
  try {
    await post("logout");
  } finally {
    leave();
  }
}

// -- the keyboard

function pressed(event) {
  if (!isForPage(event) || by("console").hidden) return;
  const at = Number(event.key) - 1;
  const act = VIEWS[at]
    ? () => (location.hash = VIEWS[at][0])
    : {
        "/": find,
        p: pause,
        t: () => by("theme").click(),
        "?": help,
      }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function find() {
  show("messages");
  by("history-id").focus();
}

function pause() {
  show("overview");
  by("pause").click();
}

/** Goes to a view now, where setting the address alone would do so later. */
function show(view) {
  if (current === view) return;
  history.pushState(null, "", `#${view}`);
  go();
}

function help() {
  showKeys(KEYS);
}

// -- the beginning

async function begin() {
  by("theme").append(icon("moon"));
  by("open-help").append(icon("keys"));
  by("logout").append(icon("leave"));
  by("open-help").addEventListener("click", help);
  by("logout").addEventListener("click", logout);
  document.addEventListener("keydown", pressed);
  addEventListener("hashchange", () => current && go());
  onGone(leave);
  const { login, who } = await session();
  if (login && !who) showLogin(by("login"), enter);
  else await enter();
}

begin().catch((error) => {
  by("login").replaceChildren(failed(error));
  by("login").hidden = false;
});
