/** A text as it was written, with spots in it marked. */

import { el, unitsOf } from "./dom.js";

/**
 * A block with the text in which spots are marked.
 *
 * @param {string} text
 * @param {{position: number|null, words: string}[]} spots Positions in characters; those without one are left out.
 * @param {string} kind Class of the marks: "fault" or "warning".
 */
export function source(text, spots = [], kind = "fault") {
  const block = el("div", {
    class: "source",
    tabindex: "0",
    role: "group",
    "aria-label": "The text as it was sent",
  });
  const found = spots
    .filter((spot) => spot.position !== null && spot.position !== undefined)
    .sort((a, b) => a.position - b.position);
  let done = 0;
  for (const { position, words } of found) {
    const begin = unitsOf(text, position);
    if (begin < done) continue;
    const character = begin < text.length ? String.fromCodePoint(text.codePointAt(begin)) : "";
    // A spot at the end, or on a line break, has nothing to be seen on.
    const shown = character === "" ? "⌷" : character === "\n" ? "↵\n" : character;
    block.append(text.slice(done, begin), el("mark", { class: kind, title: words }, shown));
    done = begin + character.length;
  }
  block.append(text.slice(done));
  return block;
}
