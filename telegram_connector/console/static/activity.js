/** What was done with this console since it was started. */

import { el, keepingFocus } from "./parts/dom.js";
import { failed, head, moment, nothing, said } from "./shared.js";
import { get } from "./session.js";

export class Activity {
  constructor() {
    this.list = el("ol", { class: "past activity", id: "activity" });
    this.root = el(
      "section",
      {},
      head("Activity", "What was done here since the console was started. Each is a log line, too."),
      el("article", { class: "card" }, this.list),
    );
  }

  open() {
    this.refresh();
  }

  changed() {
    return this.refresh();
  }

  async refresh() {
    let made;
    try {
      made = (await get("audit")).map(line);
    } catch (error) {
      made = [el("li", {}, failed(error))];
    }
    if (!made.length) made = [el("li", {}, nothing("Nothing yet", "Whatever is done here is listed."))];
    keepingFocus(this.list, () => this.list.replaceChildren(...made));
  }
}

function line({ at, who, action, ids, count, result, ok }) {
  const named = ids.map((id) => (id.length === 64 ? id.slice(0, 12) : id)).slice(0, 6);
  const of = named.join(", ") + (count > named.length ? ` and ${count - named.length} more` : "");
  return el(
    "li",
    { class: ok ? "" : "not-done" },
    moment(at),
    el(
      "span",
      {},
      el("strong", {}, action),
      of && ` ${of}`,
      el("span", { class: ok ? "muted" : "wrong" }, " — ", ...said(result)),
      el("span", { class: "muted" }, ` · ${who}`),
    ),
  );
}
