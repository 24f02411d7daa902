/** A reply typed as a user: bots get it by getUpdates. */

import { send } from "./parts/api.js";
import { button, el } from "./parts/dom.js";
import { icon } from "./parts/icons.js";

export class Composer {
  constructor(form) {
    this.form = form;
    this.chat = null;
    this.answered = null;
    this.name = el("input", {
      class: "name",
      id: "say-name",
      "aria-label": "Your name",
      placeholder: "Your name",
      maxlength: "64",
    });
    this.text = el("textarea", {
      id: "say-text",
      rows: "1",
      "aria-label": "Write as a user",
      placeholder: "Write as a user …",
      maxlength: "4096",
    });
    this.above = el("div", {});
    this.submit = el("button", { type: "submit", title: "Send", "aria-label": "Send" }, icon("send"));
    form.append(this.above, el("div", { class: "line" }, this.name, this.text, this.submit));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.say();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.say();
    });
    this.text.addEventListener("input", () => {
      this.text.rows = Math.min(6, this.text.value.split("\n").length);
    });
  }

  /** Turns to a chat; there is nothing to be written where there is none. */
  set(chat) {
    if (this.chat?.place !== chat.place) this.answer(null);
    this.chat = chat;
    this.form.hidden = chat.id === null;
  }

  /** Turns to a message to be answered; null for none. */
  answer(entry) {
    this.answered = entry;
    if (!entry) {
      this.above.replaceChildren();
      return;
    }
    const cancel = button(
      { class: "small", "aria-label": "Answer no message", on: { click: () => this.answer(null) } },
      icon("close"),
    );
    this.above.replaceChildren(
      el(
        "div",
        { class: "answered" },
        icon("reply"),
        el("span", {}, `${entry.message.author}: ${entry.message.text}`),
        cancel,
      ),
    );
    this.text.focus();
  }

  async say() {
    const text = this.text.value.trim();
    if (!text) return;
    const body = { chat: this.chat.id, text, first_name: this.name.value.trim() };
    if (this.answered) body.reply_to_message_id = this.answered.message.message_id;
    try {
      await send("POST", "/_sandbox/updates", body);
    } catch (error) {
      this.above.replaceChildren(el("p", { class: "note bad" }, error.message));
      return;
    }
    this.text.value = "";
    this.text.rows = 1;
    this.answer(null);
  }
}
