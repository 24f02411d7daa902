/** Faults and flood control, one click each. */

import { send } from "./parts/api.js";
import { button, el, keepingFocus } from "./parts/dom.js";

// What cannot go by chat, since it happens before the request is read.
const UNREAD = new Set(["reset-before"]);
const FLOODS = [
  ["off", "Off"],
  ["telegram", "As Telegram's FAQ says"],
  ["strict", "No bursts"],
];

export class Faults {
  /** @param {function(): (Object|null)} chat The chat that is open. */
  constructor(chat) {
    this.chat = chat;
    this.scope = el(
      "select",
      { id: "fault-scope" },
      el("option", { value: "chat" }, "the open chat"),
      el("option", { value: "all" }, "all chats"),
    );
    this.times = el(
      "select",
      { id: "fault-times" },
      el("option", { value: "" }, "until taken back"),
      el("option", { value: "1" }, "once"),
      el("option", { value: "3" }, "3 times"),
    );
    this.presets = el("div", { class: "presets" });
    this.others = el("select", { id: "fault-other", "aria-label": "Other answers" });
    this.active = el("div", { id: "faults" });
    this.floods = el("div", { class: "row", role: "group", "aria-label": "Flood control" });
    this.limits = el("p", { class: "muted" });
    this.trouble = el("p", { class: "note bad", hidden: true });
    this.clearAll = button(
      { class: "small", id: "clear-faults", on: { click: () => this.change("DELETE", "/_sandbox/faults") } },
      "Take all back",
    );
    const add = button({ class: "small", on: { click: () => this.add(this.others.value) } }, "Set");
    this.root = el(
      "div",
      {},
      this.trouble,
      el("section", {}, el("h3", {}, "Faults at work"), this.active, this.clearAll),
      el(
        "section",
        {},
        el("h3", {}, "Set a fault"),
        el(
          "div",
          { class: "two" },
          el("label", {}, "For", this.scope),
          el("label", {}, "It happens", this.times),
        ),
        this.presets,
        el("div", { class: "other" }, this.others, add),
      ),
      el("section", {}, el("h3", {}, "Flood control"), this.floods, this.limits),
    );
  }

  /** Shows what the sandbox has. */
  set(state) {
    keepingFocus(this.root, () => this.show(state));
  }

  show({ faults, flood, one_click: oneClick, presets }) {
    if (!this.presets.hasChildNodes()) {
      this.presets.append(
        ...oneClick.map(({ name, words }) =>
          button(
            { class: "quiet", "data-preset": name, on: { click: () => this.add(name) } },
            name,
            el("span", {}, words),
          ),
        ),
      );
      this.others.append(...presets.map((name) => el("option", { value: name }, name)));
    }
    this.active.replaceChildren(
      ...(faults.length
        ? faults.map((fault) => this.rule(fault))
        : [el("p", { class: "muted" }, "None: every call is answered as Telegram would.")]),
    );
    this.clearAll.hidden = faults.length === 0;
    const which = floodName(flood);
    this.floods.replaceChildren(
      ...FLOODS.map(([name, label]) =>
        button(
          {
            class: "small",
            "aria-pressed": String(which === name),
            "data-flood": name,
            on: { click: () => this.change("PUT", "/_sandbox/flood", { flood: name }) },
          },
          label,
        ),
      ),
    );
    this.limits.textContent = flood
      ? `A burst of ${flood.chat_burst}, then ${flood.per_chat} a second in one chat; ${flood.per_group_minute} a minute in one group; ${flood.per_bot} a second of one bot.`
      : "Calls are never too many.";
  }

  rule(fault) {
    const where = fault.chat === undefined ? "all chats" : `chat ${fault.chat}`;
    const often =
      fault.times === undefined ? `fired ${fault.fired}` : `fired ${fault.fired} of ${fault.times}`;
    const remove = button({ class: "small", "aria-label": `Take ${fault.name} back` }, "Take back");
    remove.addEventListener("click", () =>
      this.change("DELETE", `/_sandbox/faults?${new URLSearchParams({ name: fault.name })}`),
    );
    return el("div", { class: "rule" }, el("span", {}, `${fault.name} · ${where} · ${often}`), remove);
  }

  add(preset) {
    const chat = this.chat();
    const rule = { preset };
    if (this.scope.value === "chat" && chat?.id && !UNREAD.has(preset)) rule.chat = chat.id;
    if (this.times.value) rule.times = Number(this.times.value);
    return this.change("POST", "/_sandbox/faults", rule);
  }

  async change(verb, path, body) {
    try {
      await send(verb, path, body);
      this.trouble.hidden = true;
    } catch (error) {
      this.trouble.textContent = error.message;
      this.trouble.hidden = false;
    }
  }
}

function floodName(limits) {
  if (!limits) return "off";
  if (limits.per_chat !== 1 || limits.per_group_minute !== 20 || limits.per_bot !== 30) return "other";
  return limits.chat_burst === 1 ? "strict" : "telegram";
}
