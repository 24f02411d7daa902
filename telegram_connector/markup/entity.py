"""What a text is made of once its markup is read: plain text, entities, and what was lost on the way."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, fields
from typing import Any

STYLES = ("bold", "italic", "underline", "strikethrough", "spoiler")
QUOTES = ("blockquote", "expandable_blockquote")
VERBATIM = ("pre", "code", "date_time")  # nothing may be inside these

SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair: no text

# Telegram's order of entities with one span (tdlib, MessageEntity.cpp).
_PRIORITY = {
    **dict.fromkeys(QUOTES, 0),
    "pre": 11,
    "code": 20,
    "date_time": 30,
    "text_link": 49,
    "text_mention": 49,
    **{style: 90 + number for number, style in enumerate(STYLES)},
    "custom_emoji": 99,
}


@dataclass(frozen=True)
class Entity:
    """A stretch of formatted text, as the Bot API describes it.

    Attributes:
        type: ``bold``, ``text_link`` and so on.
        offset: Where it begins, in UTF-16 code units.
        length: In UTF-16 code units.
        url: Of a ``text_link``, in Telegram's normal form.
        language: Of a ``pre``.
        user_id: Of a ``text_mention``; the Bot API shows a user there.
        custom_emoji_id: Decimal.
        unix_time: Of a ``date_time``, seconds.
        date_time_format: Its letters in Telegram's order; "" for none.
        position: Where its markup begins in the source, in characters.
    """

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None
    user_id: int | None = None
    custom_emoji_id: str | None = None
    unix_time: int | None = None
    date_time_format: str | None = None
    position: int = field(default=0, compare=False)

    @property
    def end(self) -> int:
        return self.offset + self.length

    def as_json(self) -> dict[str, Any]:
        """The entity with the fields that it has."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "position"}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Notice:
    """Something that Telegram loses or changes without a word.

    Attributes:
        position: Where in the source, in characters; None where it is the message as a whole.
        words: What happens, in one sentence.
    """

    position: int | None
    words: str


@dataclass(frozen=True)
class Parsed:
    """A text without its markup.

    Attributes:
        text: As people would read it.
        entities: Sorted as Telegram sorts them.
        notices: What the parser dropped.
        origins: Where the text comes from: pairs of an index in it and the position in the source, one for
            each stretch that was taken over unchanged. Empty where text and source are the same.
    """

    text: str
    entities: tuple[Entity, ...] = ()
    notices: tuple[Notice, ...] = field(default=(), compare=False)
    origins: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    def position(self, index: int) -> int:
        """Where in the source the character at `index` of the text comes from."""
        at = bisect_right(self.origins, (index, float("inf"))) - 1
        if at < 0:
            return index
        start, position = self.origins[at]
        return position + index - start


def units(text: str) -> int:
    """Length in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def in_order(entities: list[Entity]) -> list[Entity]:
    """By offset, then the longer first, then by type."""
    return sorted(entities, key=_rank)


def _rank(entity: Entity) -> tuple[int, int, int]:
    priority = 10 if entity.type == "pre" and entity.language else _PRIORITY[entity.type]
    return entity.offset, -entity.length, priority
