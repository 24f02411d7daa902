/** What the projection would send of a local message, or why it would not. */

import { el, quiet } from "./parts/dom.js";
import { bubble, choice, failed, field, head } from "./shared.js";
import { post } from "./session.js";

const LINKS = [
  ["reply", "it answers a turn of the user's"],
  ["order", "the user ordered to publish it"],
  ["nothing", "nothing"],
];
const ROUTES = [
  ["active", "active"],
  ["disabled", "disabled"],
];
const TOPICS = [
  ["", "none: a chat without topics"],
  ["active", "active"],
  ["repair_required", "needs repair"],
  ["closed", "closed"],
];
const TO = [
  ["user", "user"],
  ["lead", "lead"],
  ["", "nobody"],
];

export class Preview {
  constructor({ sources, kinds }) {
    this.asked = 0;
    const plain = (id, value) => el("input", { id, value, autocomplete: "off" });
    this.team = plain("team", "Frontend");
    this.member = plain("member", "Alice");
    this.label = plain("label", "");
    this.to = choice("to", TO, "user");
    this.source = choice(
      "source",
      sources.map((name) => [name, name]),
      "send_message",
    );
    this.kind = choice(
      "kind",
      kinds.map((name) => [name, name]),
      "message",
    );
    this.linked = choice("linked", LINKS, "reply");
    this.route = choice("route", ROUTES, "active");
    this.topic = choice("topic", TOPICS);
    this.known = el("input", { type: "checkbox", checked: true, id: "known" });
    this.active = el("input", { type: "checkbox", checked: true, id: "active" });
    this.text = el("textarea", { id: "preview-text", rows: "7", spellcheck: "false" });
    this.text.value = "I found the failing test. The auth callback returns before token refresh completes.";
    this.result = el("div", { id: "preview-result", "aria-live": "polite" });
    this.root = el(
      "section",
      {},
      head("Preview", "The projection's own verdict on a teammate's message. Nothing is published or kept."),
      el(
        "div",
        { class: "two" },
        el(
          "form",
          { class: "card grid" },
          field("Team", this.team),
          field("Member", this.member),
          field("Signs as", this.label, "Empty: the member's name."),
          field("Addressed to", this.to),
          field("Source", this.source),
          field("Kind", this.kind),
          field("Linked to the route by", this.linked),
          field("Route", this.route),
          field("Topic", this.topic),
          el(
            "div",
            { class: "checks" },
            el("label", { class: "check" }, this.known, "Of the team"),
            el("label", { class: "check" }, this.active, "Active member"),
          ),
          el("div", { class: "wide" }, field("Text", this.text)),
        ),
        this.result,
      ),
    );
    const form = this.root.querySelector("form");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener(
      "input",
      quiet(() => this.look(), 150),
    );
  }

  open() {
    this.look();
  }

  async look() {
    this.asked += 1;
    const { asked } = this;
    let shown;
    try {
      shown = verdict(
        await post("preview", {
          team: this.team.value,
          member: this.member.value,
          label: this.label.value,
          known: this.known.checked,
          active: this.active.checked,
          to: this.to.value,
          source: this.source.value,
          kind: this.kind.value,
          linked: this.linked.value,
          route: this.route.value,
          topic: this.topic.value,
          text: this.text.value,
        }),
      );
    } catch (error) {
      shown = [failed(error)];
    }
    if (asked === this.asked) this.result.replaceChildren(...shown);
  }
}

function verdict({ leaves, words, figures, messages, reason }) {
  if (!leaves)
    return [
      el(
        "p",
        { class: "note warn", id: "verdict" },
        el("strong", {}, "Withheld. "),
        words,
        figures && ` (${figures})`,
      ),
      el("p", { class: "muted" }, "On record as ", el("code", {}, reason), "."),
    ];
  const parts = messages.length > 1 ? ` in ${messages.length} parts` : "";
  return [
    el("p", { class: "note good", id: "verdict" }, el("strong", {}, `It would be sent${parts}. `), words),
    ...messages.map((message) =>
      message.fault ? el("p", { class: "note bad" }, message.fault.description) : bubble(message),
    ),
  ];
}
