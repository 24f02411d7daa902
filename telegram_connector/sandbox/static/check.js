/** "Would this pass?": a text looked at as Telegram would, while it is typed; the same check as `lint`. */

import { send } from "./parts/api.js";
import { el, quiet } from "./parts/dom.js";
import { render } from "./parts/entities.js";
import { source } from "./parts/source.js";

const MODES = ["HTML", "MarkdownV2", "Markdown", ""];
const QUIET_MS = 120;

export class Check {
  constructor() {
    this.asked = 0;
    this.text = el("textarea", {
      rows: "7",
      id: "check-text",
      spellcheck: "false",
      placeholder: "<b>Paste a message here</b>",
    });
    this.mode = el(
      "select",
      { id: "check-mode" },
      ...MODES.map((mode) => el("option", { value: mode }, mode || "none")),
    );
    this.result = el("div", { "aria-live": "polite" });
    this.root = el(
      "div",
      { class: "check" },
      el(
        "p",
        { class: "muted" },
        "The check of telegram-connector lint, in Telegram's own words. Nothing is sent.",
      ),
      el("label", {}, "Text", this.text),
      el("label", {}, "Parse mode", this.mode),
      this.result,
    );
    const ask = quiet(() => this.ask(), QUIET_MS);
    this.text.addEventListener("input", ask);
    this.mode.addEventListener("change", ask);
  }

  /** Fills in a text and checks it. */
  set(text, mode) {
    this.text.value = text;
    this.mode.value = MODES.find((known) => known.toLowerCase() === mode.toLowerCase()) ?? "";
    this.ask();
  }

  async ask() {
    this.asked += 1;
    const { asked } = this;
    const text = this.text.value;
    if (!text) {
      this.result.replaceChildren();
      return;
    }
    let shown;
    try {
      shown = verdict(text, await send("POST", "/_sandbox/check", { text, parse_mode: this.mode.value }));
    } catch (error) {
      shown = [el("p", { class: "note bad" }, error.message)];
    }
    // An answer that another one has overtaken says nothing about the text as it is now.
    if (asked === this.asked) this.result.replaceChildren(...shown);
  }
}

function verdict(text, { fault, warnings, text: sent, entities }) {
  if (fault) {
    return section(
      el("p", { class: "note bad", id: "verdict" }, `Refused${place(fault)}: ${fault.description}`),
      source(text, [{ position: fault.position, words: fault.description }]),
    );
  }
  const size = `${[...sent].length} of 4096 characters`;
  return section(
    el(
      "p",
      { class: `note ${warnings.length ? "warn" : "good"}`, id: "verdict" },
      `Telegram would take it: ${size}, ${entities.length} ${entities.length === 1 ? "entity" : "entities"}`,
    ),
    warnings.length > 0 && el("h3", {}, "Lost or changed without a word"),
    warnings.length > 0 &&
      el("ul", { class: "problems" }, ...warnings.map((one) => el("li", {}, `${one.words}${place(one)}`))),
    warnings.length > 0 && source(text, warnings, "warning"),
    el("h3", {}, "As it would look"),
    el(
      "div",
      { class: "preview" },
      el("div", { class: "bubble" }, el("div", { class: "text", dir: "auto" }, render(sent, entities))),
    ),
  );
}

const section = (...children) => [el("section", {}, ...children)];
const place = ({ line, column }) => (line === null ? "" : ` (line ${line}, column ${column})`);
