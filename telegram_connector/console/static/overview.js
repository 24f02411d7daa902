/** How things stand, live; pausing and resuming. */

import { button, el, keepingFocus } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import { ago, ask, busy, choice, counted, exactly, field, head, lasting, tell } from "./shared.js";
import { post } from "./session.js";

const LENGTHS = [
  ["", "until resumed"],
  ["10m", "10 minutes"],
  ["1h", "an hour"],
  ["8h", "8 hours"],
  ["1d", "a day"],
];

export class Overview {
  constructor() {
    const pause = button({ id: "pause" }, icon("pause"), "Pause…");
    pause.addEventListener("click", () => pauseSomebody());
    this.shown = el("div", { class: "sections" }, el("p", { class: "muted" }, "Looking…"));
    this.root = el(
      "section",
      {},
      head("Overview", "What JetStream and the connectors say now.", pause),
      this.shown,
    );
  }

  open() {}

  /** Shows a picture; parts that are as they were are left alone. */
  picture({ overview, trouble }) {
    if (!overview) return;
    const made = [
      headline(overview, trouble),
      tiles(overview),
      pauses(overview),
      holds(overview),
      connectors(overview),
      unknown(overview),
    ].filter(Boolean);
    const old = [...this.shown.children];
    if (made.length === old.length) {
      made.forEach((one, at) => {
        if (one.outerHTML !== old[at].outerHTML)
          keepingFocus(old[at].parentNode, () => old[at].replaceWith(one));
      });
    } else keepingFocus(this.shown, () => this.shown.replaceChildren(...made));
    this.shown.classList.toggle("stale", Boolean(trouble));
  }
}

function headline(overview, trouble) {
  const [kind, title, words] = trouble
    ? ["bad", "NATS does not answer", `As it was at ${exactly(overview.at)}.`]
    : standing(overview);
  const drawn = { good: "check", warn: "warning", bad: "warning" }[kind];
  return el(
    "div",
    { class: `headline ${kind}`, id: "headline" },
    icon(drawn),
    el("div", {}, el("strong", {}, title), el("p", {}, words)),
  );
}

/** What matters most: kind, title, words. */
function standing({ connectors, pauses, pulling, pinned }) {
  const active = connectors.filter((one) => one.role === "active");
  const ofBot = (pauses ?? []).find((one) => one.chat === null);
  const bot = active.map((one) => one.work.bot).find(Boolean);
  if (ofBot)
    return [
      "warn",
      "The bot is paused by an operator",
      `${ends(ofBot)}${ofBot.reason ? `: ${ofBot.reason}` : ""}. Messages wait in order.`,
    ];
  if (bot?.fault)
    return ["bad", "The bot is refused by Telegram", `${bot.reason}. Nothing is lost; ${nextTry(bot)}.`];
  if (bot) return ["warn", "The bot is held", `${bot.reason}; ${nextTry(bot)}.`];
  if (!connectors.length)
    return pulling || pinned
      ? [
          "warn",
          "A connector pulls, and none answers",
          "It is older, or its NATS user lacks the rights to answer; see telegram-connector check.",
        ]
      : ["bad", "No connector runs", "Nobody sends. Messages wait in the stream."];
  if (!active.length)
    return ["warn", "No connector is active yet", "The one that is handed the next message becomes active."];
  if (!active.some((one) => one.sending))
    return [
      "bad",
      "The active connector sends nothing now",
      "It is not connected, or its settlements are not confirmed.",
    ];
  const standby = connectors.length - active.length;
  return ["good", "Sending", standby ? `1 active, ${counted(standby, "standby")}.` : "1 active, no standby."];
}

function nextTry({ next_try_in_seconds: seconds }) {
  return seconds > 0 ? `the next try is in ${lasting(seconds)}` : "the next message is a trial";
}

function ends({ ends_in_seconds: seconds }) {
  return seconds === null ? "Until resumed" : `For another ${lasting(seconds)}`;
}

function tiles(overview) {
  const { backlog, outstanding, dead_letters: dead, ambiguous } = overview;
  const sent = overview.connectors.reduce((sum, one) => sum + one.tally.rates.sent[0], 0);
  const reasons = Object.entries(dead?.by_reason ?? {}).map(
    ([name, count]) => `${count} ${name.replace("_", " ")}`,
  );
  const part = dead && dead.read < dead.count ? `of the newest ${dead.read}: ` : "";
  return el(
    "ul",
    { class: "tiles" },
    tile(
      "Waiting",
      backlog && backlog.count,
      backlog?.age_seconds ? `the oldest for ${lasting(backlog.age_seconds)}` : "in the stream",
    ),
    tile(
      "Outstanding",
      outstanding && outstanding.count,
      overview.redelivered ? `${overview.redelivered} handed over more than once` : "handed to connectors",
    ),
    tile("In doubt", ambiguous, "perhaps sent, perhaps not", "doubt", ambiguous ? "warn" : ""),
    tile("Dead letters", dead && dead.count, reasons.length ? part + reasons.join(", ") : "none", "dead"),
    tile("A minute", Math.round(sent * 10) / 10, "sent over the last minute"),
    el(
      "li",
      { class: "tile" },
      el("span", { class: "name" }, "Last send"),
      el("span", { class: "figure" }, overview.last_sent_at ? ago(overview.last_sent_at) : "—"),
      el(
        "span",
        { class: "muted" },
        overview.last_sent_at ? exactly(overview.last_sent_at) : "since the connectors' start",
      ),
    ),
  );
}

function tile(name, figure, words, view = "", kind = "") {
  const inner = [
    el("span", { class: "name" }, name),
    el(
      "span",
      { class: `figure ${kind}` },
      figure === null || figure === undefined ? "—" : figure.toLocaleString("en"),
    ),
    el("span", { class: "muted" }, figure === null || figure === undefined ? "may not be read" : words),
  ];
  return view
    ? el("li", {}, el("a", { class: "tile", href: `#${view}`, id: `tile-${view}` }, ...inner))
    : el("li", { class: "tile" }, ...inner);
}

function panel(title, ...children) {
  return el("section", { class: "panel" }, el("h3", {}, title), ...children);
}

function pauses({ pauses: all }) {
  if (!all?.length) return null;
  return panel(
    "Paused by operators",
    el("ul", { class: "lines", id: "pauses" }, ...all.map((one) => el("li", {}, pauseLine(one)))),
  );
}

function pauseLine(pause) {
  const resume = button({ class: "small" }, icon("play"), "Resume");
  resume.addEventListener("click", () =>
    busy(resume, async () => {
      try {
        report(await post("resume", { chat: pause.chat ?? "" }));
      } catch (error) {
        tell(error.message, "bad");
      }
    }),
  );
  return el(
    "div",
    { class: "line" },
    el(
      "div",
      {},
      el("strong", {}, pause.chat ? `Chat ${pause.chat}` : "The bot"),
      el(
        "div",
        { class: "muted" },
        `${ends(pause)}; since ${exactly(pause.since)}`,
        pause.reason && ` — ${pause.reason}`,
      ),
    ),
    resume,
  );
}

function holds({ connectors }) {
  const all = connectors.flatMap((one) => one.work.holds);
  if (!all.length) return null;
  const more = connectors.reduce((sum, one) => sum + one.work.holds_in_all - one.work.holds.length, 0);
  return panel(
    "Chats held by flood control or after failures",
    el(
      "ul",
      { class: "lines", id: "holds" },
      ...all.map((hold) =>
        el(
          "li",
          {},
          el(
            "div",
            { class: "line" },
            el("strong", {}, `Chat ${hold.chat}`),
            el("span", { class: "muted" }, counted(hold.waiting, "message"), " waiting"),
            el("span", { class: "badge warn" }, icon("clock"), `${lasting(hold.ends_in_seconds)} left`),
          ),
        ),
      ),
    ),
    more > 0 && el("p", { class: "muted" }, `${counted(more, "more chat")} held.`),
  );
}

function connectors({ connectors: all }) {
  if (!all.length) return null;
  return panel("Connectors", el("ul", { class: "cards" }, ...all.map((one) => el("li", {}, connector(one)))));
}

function connector({ role, sending, host, pid, version, up_seconds: up, work, tally }) {
  const kind = role !== "active" ? "" : sending ? "good" : "bad";
  const dropped = Object.entries(tally.dropped).map(([name, count]) => `${count} ${name.replace("_", " ")}`);
  return el(
    "article",
    { class: "card connector" },
    el(
      "div",
      { class: "line" },
      el("strong", {}, host),
      el("span", { class: `badge ${kind}` }, role === "active" && !sending ? "active, sends nothing" : role),
    ),
    el("p", { class: "muted" }, `pid ${pid}, version ${version}, up ${lasting(up)}`),
    el(
      "p",
      {},
      `${work.waiting} waiting, ${work.in_flight} in flight, ${work.awaited} awaited of ${work.limit.toLocaleString("en")}`,
    ),
    el(
      "p",
      {},
      `${tally.rates.sent.map((rate) => Math.round(rate * 10) / 10).join(" · ")} a minute over 1, 5 and 15 minutes`,
    ),
    el(
      "p",
      { class: "muted" },
      `Since its start: ${tally.sent} sent, ${tally.retried} retried, ${dropped.join(", ") || 0} dropped`,
    ),
    work.unconfirmed > 0 &&
      el("p", { class: "note warn" }, `${counted(work.unconfirmed, "settlement")} not confirmed`),
    work.bot &&
      el(
        "p",
        { class: `note ${work.bot.fault ? "bad" : "warn"}` },
        `Bot ${work.bot.fault ? "refused" : "held"} for ${lasting(work.bot.held_seconds)}: ${work.bot.reason}`,
      ),
  );
}

function unknown({ unknown: all }) {
  return (
    all.length > 0 &&
    panel(
      "Not known",
      el("ul", { class: "lines" }, ...all.map((words) => el("li", { class: "muted" }, words))),
    )
  );
}

/** Asks whom to pause, for how long and why. */
function pauseSomebody() {
  const chat = el("input", { id: "pause-chat", placeholder: "-1001234567890 or @name", autocomplete: "off" });
  const lasts = choice("pause-lasting", LENGTHS, "10m");
  const reason = el("input", { id: "pause-reason", maxlength: "200", autocomplete: "off" });
  return ask(
    {
      title: "Pause",
      act: "Pause",
      body: [
        el(
          "p",
          {},
          "Nothing is lost: messages wait in order, but those that expire meanwhile become dead letters.",
        ),
        field("Chat", chat, "As its envelopes name it. Empty: the whole bot."),
        field("For how long", lasts),
        field("Why", reason, "Shown in status, logs and alerts."),
      ],
    },
    async () =>
      report(await post("pause", { chat: chat.value.trim(), lasting: lasts.value, reason: reason.value })),
  );
}

function report({ words, doubts }) {
  tell(words);
  for (const doubt of doubts) tell(doubt, "warn");
}
