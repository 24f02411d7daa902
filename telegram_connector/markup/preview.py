"""How a message would look, for a terminal."""

from __future__ import annotations

import re
from itertools import pairwise

from telegram_connector.markup.entity import QUOTES, Entity
from telegram_connector.markup.parsing import check

_SGR = {
    "bold": "1",
    "italic": "3",
    "underline": "4",
    "strikethrough": "9",
    "spoiler": "7",
    "code": "36",
    "pre": "36",
    "text_link": "4;34",
    "text_mention": "34",
    "date_time": "35",
}
# What a terminal obeys or reorders: controls but the line feed, direction marks, halves of pairs.
_HARMFUL = re.compile(
    "[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)


def preview(text: str, parse_mode: str | None, colour: bool = True) -> str:
    """Show a text as Telegram would, roughly.

    Links are followed by their address, mentions by the user's id; quotes have a bar before each line.

    Args:
        text: As it would be given to ``sendMessage``.
        parse_mode: As for ``parse``.
        colour: Whether to use ANSI escape sequences.

    Raises:
        MarkupError: Telegram would refuse it.
    """
    sent = check(text, parse_mode)
    raw = sent.text.encode("utf-16-le")
    borders = {0, len(raw) // 2, *(e.offset for e in sent.entities), *(e.end for e in sent.entities)}
    # Stretches of the text outside quotes and of each quote, one after the other.
    blocks: list[tuple[Entity | None, str]] = []
    for begin, end in pairwise(sorted(borders)):
        around = [entity for entity in sent.entities if entity.offset <= begin and end <= entity.end]
        shown = _styled(raw[2 * begin : 2 * end].decode("utf-16-le"), around, colour)
        shown += "".join(_address(entity) for entity in around if entity.end == end)
        quote = next((entity for entity in around if entity.type in QUOTES), None)
        if blocks and blocks[-1][0] == quote:
            shown = blocks.pop()[1] + shown
        blocks.append((quote, shown))
    return "\n".join(_barred(shown) if quote else shown for quote, shown in map(_without_last_break, blocks))


def harmless(text: str) -> str:
    """The text with a replacement character for each one that a terminal would obey."""
    return _HARMFUL.sub("\ufffd", text)


def _styled(text: str, around: list[Entity], colour: bool) -> str:
    codes = ";".join(_SGR[entity.type] for entity in around if entity.type in _SGR)
    if not colour or not codes:
        return harmless(text)
    return "\n".join(f"\x1b[{codes}m{line}\x1b[0m" if line else "" for line in harmless(text).split("\n"))


def _without_last_break(block: tuple[Entity | None, str]) -> tuple[Entity | None, str]:
    """A block begins on a new line anyway."""
    return block[0], block[1].removesuffix("\n")


def _barred(text: str) -> str:
    return "\n".join(f"│ {line}" for line in text.split("\n"))


def _address(entity: Entity) -> str:
    if entity.url is not None:
        return f" ({harmless(entity.url)})"
    if entity.user_id is not None:
        return f" (user {entity.user_id})"
    return ""
