/**
 * A text with its entities, as Telegram shows them. Offsets of entities are in UTF-16 units, which is how
 * scripts count too.
 */

import { button, el, pressable } from "./dom.js";
import { showLink } from "./links.js";

const BLOCKS = new Set(["blockquote", "expandable_blockquote", "pre"]);
const PLAIN_TAGS = {
  bold: "strong",
  italic: "em",
  underline: "u",
  strikethrough: "s",
  code: "code",
};

/**
 * The nodes of a text.
 *
 * @param {string} text
 * @param {Object[]} entities MessageEntity objects of the Bot API.
 * @returns {DocumentFragment}
 */
export function render(text, entities) {
  const ordered = [...entities].sort((a, b) => a.offset - b.offset || b.length - a.length);
  const root = document.createDocumentFragment();
  // The entities that are open, each with the node that what comes next is put into.
  const open = [];
  for (const [begin, end] of stretches(text, ordered)) {
    const around = ordered.filter((entity) => entity.offset <= begin && end <= entity.offset + entity.length);
    let same = 0;
    while (same < open.length && open[same].entity === around[same]) same += 1;
    open.length = same;
    for (const entity of around.slice(same)) {
      const { outer, inner } = made(entity, text);
      (open.at(-1)?.inner ?? root).append(outer);
      open.push({ entity, inner });
    }
    const piece = withoutBreaks(text, begin, end, around, ordered);
    if (piece) (open.at(-1)?.inner ?? root).append(piece);
  }
  return root;
}

/** The stretches between all borders of entities. */
function* stretches(text, entities) {
  const borders = new Set([0, text.length]);
  for (const { offset, length } of entities) {
    borders.add(Math.min(offset, text.length));
    borders.add(Math.min(offset + length, text.length));
  }
  const sorted = [...borders].sort((a, b) => a - b);
  for (let at = 1; at < sorted.length; at += 1) yield [sorted[at - 1], sorted[at]];
}

/** A stretch without the line break that a block beside it makes anyway. */
function withoutBreaks(text, begin, end, around, entities) {
  let piece = text.slice(begin, end);
  const blocks = entities.filter((entity) => BLOCKS.has(entity.type) && !around.includes(entity));
  if (blocks.some((block) => block.offset + block.length === begin)) piece = piece.replace(/^\n/, "");
  if (blocks.some((block) => block.offset === end)) piece = piece.replace(/\n$/, "");
  return piece;
}

/** The element of an entity, and the one that its content is put into. */
function made(entity, text) {
  const element = MAKERS[entity.type]?.(entity, text) ?? el(PLAIN_TAGS[entity.type] ?? "span");
  return element.outer ? element : { outer: element, inner: element };
}

const MAKERS = {
  spoiler() {
    const hidden = el("span", {
      class: "spoiler hidden",
      role: "button",
      "aria-label": "Spoiler: press to read it",
    });
    return pressable(hidden, (event) => {
      if (!hidden.classList.contains("hidden")) return;
      event.preventDefault();
      event.stopPropagation();
      const message = hidden.closest(".text") ?? hidden.parentNode;
      // As in Telegram, all of a message at once.
      for (const spoiler of message.querySelectorAll(".spoiler.hidden")) {
        spoiler.classList.remove("hidden");
        for (const name of ["role", "aria-label", "tabindex"]) spoiler.removeAttribute(name);
      }
    });
  },

  blockquote: () => el("blockquote"),

  expandable_blockquote(entity, text) {
    const inner = el("div", { class: "quoted" });
    const outer = el("blockquote", { class: "expandable" }, inner);
    const quoted = text.slice(entity.offset, entity.offset + entity.length);
    // Telegram folds what is longer than three lines.
    if (quoted.split("\n").length > 3 || quoted.length > 150) {
      outer.classList.add("folded");
      const more = button({ class: "more", "aria-expanded": "false" }, "Show more");
      more.addEventListener("click", (event) => {
        event.stopPropagation();
        const folded = outer.classList.toggle("folded");
        more.textContent = folded ? "Show more" : "Show less";
        more.setAttribute("aria-expanded", String(!folded));
      });
      outer.append(more);
    }
    return { outer, inner };
  },

  pre(entity) {
    const inner = el("code", {});
    const label = entity.language ? el("span", { class: "language" }, entity.language) : null;
    return { outer: el("pre", { tabindex: "0" }, label, inner), inner };
  },

  text_link(entity) {
    const link = el("span", { class: "link", role: "link", title: entity.url });
    return pressable(link, (event) => {
      event.stopPropagation();
      showLink(entity.url);
    });
  },

  text_mention: (entity) =>
    el("span", { class: "mention", title: `user ${entity.user?.id ?? entity.user_id ?? ""}` }),

  custom_emoji: (entity) => el("span", { class: "emoji", title: `custom emoji ${entity.custom_emoji_id}` }),

  date_time: (entity) =>
    el("span", { class: "date", title: new Date(entity.unix_time * 1000).toLocaleString() }),
};
