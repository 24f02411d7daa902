/** What the views have in common: times in words, badges, questions, notices. */

import { button, el } from "./parts/dom.js";
import { icon } from "./parts/icons.js";
import { render } from "./parts/entities.js";
import { source } from "./parts/source.js";
import { post } from "./session.js";

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** About so long, in its two largest units. */
export function lasting(seconds) {
  let left = Math.max(0, Math.round(seconds));
  const shown = [];
  for (const [name, length] of UNITS) {
    const number = Math.floor(left / length);
    left -= number * length;
    if (number || (name === "s" && !shown.length)) shown.push(`${number} ${name}`);
  }
  return shown.slice(0, 2).join(" ");
}

/** How long ago that was, as a <time> that says exactly when. */
export function ago(at) {
  const seconds = (Date.now() - Date.parse(at)) / 1000;
  const [name, length] = UNITS.find(([, length]) => seconds >= length) ?? UNITS.at(-1);
  const words = seconds < 5 ? "just now" : `${Math.floor(seconds / length)} ${name} ago`;
  return el("time", { datetime: at, title: exactly(at) }, words);
}

/** When that was, in the time of who looks. */
export function exactly(at) {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/** Words of the server's, with times as who looks has them and long ids cut short. */
export function said(words) {
  return words.split(/(\d{4}-\d\d-\d\dT[\d:.]+Z|\b[0-9a-f]{64}\b)/).map((piece, at) => {
    if (at % 2 === 0) return piece;
    return piece.length === 64 ? el("code", { title: piece }, piece.slice(0, 12)) : moment(piece);
  });
}

/** A time as who looks has it. */
export function moment(at) {
  return el("time", { datetime: at, title: at }, exactly(at));
}

export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

const KINDS = {
  refused: "bad",
  unreadable: "bad",
  gave_up: "bad",
  conflict: "bad",
  failed_terminal: "bad",
  ambiguous: "warn",
  send_ambiguous: "warn",
  expired: "warn",
  rate_limited: "warn",
  claimed: "warn",
  sent: "good",
  resent: "good",
};
const WORDS = {
  gave_up: "gave up",
  ambiguous: "in doubt",
  send_ambiguous: "in doubt",
  send_in_flight: "on its way",
  rate_limited: "held by Telegram",
  failed_retryable_before_send: "waits for another try",
  failed_terminal: "dropped",
  claimed: "being resent",
};

/** A state or reason in a word. */
export function badge(state, kind = KINDS[state] ?? "") {
  return el("span", { class: `badge ${kind}` }, WORDS[state] ?? state);
}

/** Pairs of a name and what belongs to it; those without are left out. */
export function facts(pairs, kind = "") {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el(
    "dl",
    { class: `facts ${kind}` },
    ...shown.map(([name, value]) =>
      el(
        "div",
        {},
        el("dt", {}, name),
        el("dd", {}, ...(Array.isArray(value) ? value : [typeof value === "number" ? String(value) : value])),
      ),
    ),
  );
}

/** What a view begins with. */
export function head(title, words, ...tools) {
  return el(
    "div",
    { class: "head" },
    el("div", {}, el("h2", {}, title), words && el("p", { class: "muted" }, words)),
    tools.length > 0 && el("div", { class: "row" }, ...tools),
  );
}

export function nothing(title, words) {
  return el(
    "div",
    { class: "nothing" },
    icon("check"),
    el("p", {}, el("strong", {}, title)),
    el("p", { class: "muted" }, words),
  );
}

export function failed(error) {
  return el("p", { class: "note bad" }, error.message);
}

/** A field with its label. */
export function field(label, input, help = "") {
  return el("label", {}, label, input, help && el("span", { class: "help" }, help));
}

export function choice(id, options, chosen = "") {
  const made = el(
    "select",
    { id },
    ...options.map(([value, words]) => el("option", { value, selected: value === chosen }, words)),
  );
  return made;
}

/** Disables a button while something is done. */
export async function busy(pressed, work) {
  pressed.disabled = true;
  try {
    return await work();
  } finally {
    pressed.disabled = false;
  }
}

/** Tells what was done, for a while. */
export function tell(words, kind = "good") {
  const note = el("p", { class: `note ${kind}` }, words);
  document.getElementById("told").append(note);
  setTimeout(() => note.remove(), kind === "good" ? 6000 : 12000);
}

/**
 * Asks before something is done, and does it: the question stays open with the server's words where that fails.
 *
 * @param {Object} question
 * @param {string} question.title
 * @param {Node[]} question.body
 * @param {string} question.act What the button says.
 * @param {boolean} question.harm Whether it is red.
 * @param {number|null} question.count What has to be typed first; null for nothing.
 * @param {function(): Promise} work Done when the button is pressed; what it comes to closes the question.
 * @returns {Promise} What the work came to; undefined where it was not wanted.
 */
export function ask({ title, body, act, harm = false, count = null }, work) {
  return new Promise((resolve) => {
    const go = el("button", { type: "submit", class: harm ? "harm" : "" }, act);
    const close = button({ class: "quiet" }, "Cancel");
    const trouble = el("div", { "aria-live": "assertive" });
    const typed = el("input", { id: "typed-count", inputmode: "numeric", autocomplete: "off" });
    const form = el(
      "form",
      {},
      ...body,
      count !== null && field(`Type ${count} to confirm`, typed),
      trouble,
      el("p", { class: "row end" }, close, go),
    );
    const dialog = el("dialog", { "aria-label": title }, el("h2", {}, title), form);
    const allowed = () => count === null || typed.value.trim() === String(count);
    go.disabled = !allowed();
    typed.addEventListener("input", () => (go.disabled = !allowed()));
    let result;
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!allowed() || go.disabled) return;
      trouble.replaceChildren();
      try {
        result = (await busy(go, work)) ?? true;
        dialog.close();
      } catch (error) {
        trouble.replaceChildren(failed(error));
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A text that is hidden until somebody asks for it, which is logged. */
export function hiddenText(path) {
  const shown = el("div", { class: "body" });
  const show = button({ class: "small show-text" }, icon("eye"), "Show the text");
  const note = el("span", { class: "muted small" }, "Hidden. Showing it is logged.");
  const line = el("p", { class: "row" }, show, note);
  shown.append(line);
  show.addEventListener("click", () =>
    busy(show, async () => {
      try {
        const found = await post(path);
        const hide = button({ class: "small" }, "Hide");
        hide.addEventListener("click", () => shown.replaceChildren(line));
        shown.replaceChildren(...bodyOf(found), hide);
        hide.focus();
      } catch (error) {
        note.textContent = error.message;
      }
    }),
  );
  return shown;
}

function bodyOf({ text, parse_mode: mode, raw, lost, verdict }) {
  if (lost) return [el("p", { class: "note warn" }, "Its text is in the streams no more.")];
  if (text === null)
    return [
      el("p", { class: "muted small" }, "It has no text that can be read; these are its bytes."),
      el("div", { class: "raw", tabindex: "0" }, raw),
    ];
  const { fault } = verdict;
  const place = fault && fault.line !== null ? ` (line ${fault.line}, column ${fault.column})` : "";
  return [
    el("h3", {}, mode ? `As it was written (${mode})` : "As it was written"),
    source(text, fault ? [{ position: fault.position, words: fault.description }] : []),
    fault && el("p", { class: "note bad" }, `${fault.description}${place}`),
    !fault && el("h3", {}, "As it would look"),
    !fault && bubble(verdict),
  ].filter(Boolean);
}

/** A message as Telegram shows it. */
export function bubble({ text, entities }) {
  return el(
    "div",
    { class: "canvas" },
    el("div", { class: "bubble" }, el("div", { class: "text", dir: "auto" }, render(text, entities))),
  );
}
