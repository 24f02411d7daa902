"""What Telegram loses or changes without a word."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from telegram_connector.markup.entity import STYLES, Entity, Notice, Parsed, units
from telegram_connector.markup.finish import MAX_CODE_POINTS, MAX_ENTITIES, finish
from telegram_connector.markup.parsing import parse
from telegram_connector.markup.repair import repair

# Endings of file names that are top-level domains too (tdlib, MessageEntity.cpp), and so become links.
_FILES = "ai app bz cab cc dev io java md mk ml mov mp ms net pl pm ps pub py rs run sc sh so st tf ws zip"
_FILE_NAME = re.compile(
    rf"(?<![\w@./:#-])[\w-]+(?:\.[\w-]+)*\.(?:{'|'.join(_FILES.split())})(?![\w@/-]|\.\w)", re.I
)
_IP_ADDRESS = re.compile(r"(?<![\w@./:-])(?:\d{1,3}\.){3}\d{1,3}(?![\w@/.-])", re.ASCII)
_REFERENCE = re.compile(r"&(?!(?:lt|gt|amp|quot)\b)(?:#\w{1,10};|[A-Za-z]{2,12};)")
# A carriage return is left out: that it vanishes hurts nobody.
_CHANGED = re.compile("[\0-\x09\x0b\x0c\x0e-\x1f\u2028-\u202e\u030a\u0333\u033f]")
_NO_DETECTION = ("code", "pre", "text_link", "text_mention")


def warnings(text: str, parse_mode: str | None) -> tuple[Notice, ...]:
    """What Telegram would lose or change of a text, in the order of the positions.

    Args:
        text: As it would be given to ``sendMessage``.
        parse_mode: As for ``parse``.

    Raises:
        MarkupError: Telegram would refuse it.
    """
    parsed = parse(text, parse_mode)
    sent = finish(parsed)
    found = [*parsed.notices, *_overlapping(parsed), *_changed(parsed), *_detected(parsed)]
    if (parse_mode or "").lower() == "html":
        found += _references(parsed, text)
    found += _sizes(parsed, sent)
    return tuple(sorted(found, key=lambda notice: -1 if notice.position is None else notice.position))


def _overlapping(parsed: Parsed) -> Iterator[Notice]:
    """Entities of which nothing remains, since they lie within or across others."""
    kept: dict[str, list[Entity]] = {}
    for entity in repair(parsed.entities):
        kept.setdefault(entity.type, []).append(entity)
    for entity in parsed.entities:
        same = kept.get(entity.type, [])
        at = bisect_right(same, entity.end - 1, key=lambda other: other.offset) - 1
        # A style may be cut or merged; anything else is there as it was or not at all.
        remains = at >= 0 and same[at].end > entity.offset
        if not remains or (entity.type not in STYLES and same[at] != entity):
            yield Notice(entity.position, f"{entity.type} is lost: another entity is in its way")


def _changed(parsed: Parsed) -> Iterator[Notice]:
    """Characters that are replaced or removed: the first of each, and how many there are."""
    characters = Counter(_CHANGED.findall(parsed.text))
    for character, count in characters.items():
        becomes = "becomes a space" if character < " " else "vanishes"
        name = unicodedata.name(character, "control character")
        times = f" ({count} times)" if count > 1 else ""
        where = parsed.position(parsed.text.index(character))
        yield Notice(where, f"U+{ord(character):04X} ({name}) {becomes}{times}")


def _detected(parsed: Parsed) -> Iterator[Notice]:
    """Words that Telegram takes for addresses of web sites."""
    raw = parsed.text.encode("utf-16-le", "surrogatepass")
    pieces, end = [], 0
    for entity in parsed.entities:
        if entity.type in _NO_DETECTION and entity.offset >= end:
            pieces.append(raw[2 * end : 2 * entity.offset])
            # As many characters that are part of no address.
            inside = raw[2 * entity.offset : 2 * entity.end].decode("utf-16-le", "surrogatepass")
            pieces.append((" " * len(inside)).encode("utf-16-le"))
            end = entity.end
    pieces.append(raw[2 * end :])
    text = b"".join(pieces).decode("utf-16-le", "surrogatepass")
    for pattern in (_FILE_NAME, _IP_ADDRESS):
        for found in pattern.finditer(text):
            yield Notice(parsed.position(found.start()), f"{found[0]} becomes a link; in code it does not")


def _references(parsed: Parsed, source: str) -> Iterator[Notice]:
    for found in _REFERENCE.finditer(parsed.text):
        position = parsed.position(found.start())
        # One that came of an escaped ampersand is meant.
        if source.startswith(found[0], position):
            yield Notice(
                position, f"{found[0]} stays as it is: Telegram knows only &lt; &gt; &amp; &quot; and numbers"
            )


def _sizes(parsed: Parsed, sent: Parsed) -> Iterator[Notice]:
    length = units(sent.text)
    if length > MAX_CODE_POINTS:
        yield Notice(
            None,
            f"{length} UTF-16 units in {len(sent.text)} characters: within the limit of {MAX_CODE_POINTS} "
            "characters, but Telegram's servers may count otherwise",
        )
    if len(repair(parsed.entities)) > len(sent.entities) >= MAX_ENTITIES:
        yield Notice(None, f"more than {MAX_ENTITIES} entities: the rest is lost")
