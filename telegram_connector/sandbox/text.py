"""What becomes of a text: parsed, cleaned, trimmed, measured; in Telegram's order and words.

`parse` is the seam for the markup's own parser. Until that exists, marked-up text passes through as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from telegram_connector.sandbox.answers import bad_request

MAX_RAW_BYTES = 32_768
MAX_CODE_POINTS = 4096
MAX_ENTITIES = 100

Entity = Mapping[str, Any]

_PARSE_MODES = frozenset({"html", "markdown", "markdownv2", "none", ""})
# What may begin markup in each mode; a text without any of it means itself.
_MARKUP = {
    "html": re.compile(r"[<&]"),
    "markdown": re.compile(r"[_*`\[\\]"),
    "markdownv2": re.compile(r"[_*\[\]()~`>#+\-=|{}.!\\]"),
}
_ENTITY_TYPES = frozenset(
    (
        *("bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "text_link"),
        *("text_mention", "custom_emoji", "blockquote", "expandable_blockquote", "date_time"),
    )
)
# Taken and ignored: Telegram finds these by itself.
_DETECTED = frozenset(
    ["mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bank_card_number"]
)

# Telegram's cleaning (facts on markup, section 6, item 1).
_CLEANED: dict[int, str] = {code: " " for code in range(0x21) if code not in (0x0A, 0x0D)}
_CLEANED.update(dict.fromkeys((13, *range(8232, 8239), 778, 819, 831), ""))
_DIRECTION_RUN = re.compile("[\u200e\u200f]+(?=[\u200e\u200f])")
_BLANKS = frozenset(
    [" ", "\n", "\ufeff", "\u00a0", "\u1680", "\u180e", "\u202f", "\u205f", "\u2800", "\u3000", "\ufffc"]
    + [chr(code) for code in (*range(0x2000, 0x2010), *range(0xE0000, 0xE0080))]
)


@dataclass(frozen=True)
class Parsed:
    """A text and its entities.

    Attributes:
        text: Without markup where `exact`, else as it came.
        entities: In the Bot API's form: offsets and lengths in UTF-16 code units.
        exact: Whether `text` is what Telegram would show. Where it is not, its length and emptiness say
            nothing.
        parse_mode: As given, in lower case; "" for none.
    """

    text: str
    entities: tuple[Entity, ...] = ()
    exact: bool = True
    parse_mode: str = ""


def parse(text: str, parse_mode: str) -> Parsed:
    """Parses markup; HTML, MarkdownV2 and Markdown that is any passes through unparsed and is never refused.

    Raises:
        Refused: `parse_mode` is none of Telegram's.
    """
    mode = parse_mode.lower()
    if mode not in _PARSE_MODES:
        raise bad_request("unsupported parse_mode")
    if mode in ("", "none"):
        return Parsed(text)
    return Parsed(text, exact=_MARKUP[mode].search(text) is None, parse_mode=mode)


def read(params: Mapping[str, str]) -> Parsed:
    """The text of a call after the checks that come before the chat is looked at.

    Raises:
        Refused: Absent or empty, too many bytes, unknown parse mode, bad entities.
    """
    text = params.get("text", "")
    if not text:
        raise bad_request("message text is empty")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_RAW_BYTES:
        raise bad_request("text is too long")
    parsed = parse(text, params.get("parse_mode", ""))
    if parsed.parse_mode:
        if not _encodes(text):
            raise bad_request("text must be encoded in UTF-8")
        return parsed
    return replace(parsed, entities=_read_entities(params.get("entities", "")))


def finish(parsed: Parsed) -> Parsed:
    """Cleans, trims and measures a text, its entities moving along.

    Raises:
        Refused: Not UTF-8, an entity outside the text, nothing visible left, or more than 4096 code points.
    """
    if not _encodes(parsed.text):
        raise bad_request("strings must be encoded in UTF-8")
    _check_bounds(parsed)
    text, entities = _clean(parsed)
    if parsed.exact:
        if all(character in _BLANKS for character in text):
            raise bad_request("text must be non-empty")
        if len(text) > MAX_CODE_POINTS:
            raise bad_request("message is too long")
    return replace(parsed, text=text, entities=entities[:MAX_ENTITIES])


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_entities(value: str) -> tuple[Entity, ...]:
    try:
        items = json.loads(value) if value else []
    except (ValueError, RecursionError):
        # Telegram ignores what is no JSON here, without a word.
        return ()
    if not isinstance(items, list):
        return ()
    return tuple(entity for entity in map(_read_entity, items) if entity["type"] not in _DETECTED)


def _read_entity(item: Any) -> Entity:
    if not isinstance(item, dict):
        raise bad_request("can't parse MessageEntity: expected an Object")
    offset, length = item.get("offset"), item.get("length")
    for name, number in (("offset", offset), ("length", length)):
        if not isinstance(number, int):
            raise bad_request(f"can't parse MessageEntity: Can't find field \"{name}\"")
    if item.get("type") not in _ENTITY_TYPES | _DETECTED:
        raise bad_request("can't parse MessageEntity: Unsupported type specified")
    return item


def _check_bounds(parsed: Parsed) -> None:
    if not parsed.entities:
        return
    # Where each UTF-16 offset that begins a character lies in bytes; the middle of a pair has no entry.
    starts = {0: 0}
    units = size = 0
    for character in parsed.text:
        units += 2 if ord(character) > 0xFFFF else 1
        size += len(character.encode())
        starts[units] = size
    for entity in sorted(parsed.entities, key=lambda e: (e["offset"], -e["length"])):
        begin, end = entity["offset"], entity["offset"] + entity["length"]
        if begin > units:
            raise bad_request(f"entity begins after the end of the text at UTF-16 offset {begin}")
        if end > units:
            raise bad_request(
                f"entity beginning at UTF-16 offset {begin} ends after the end of the text "
                f"at UTF-16 offset {end}"
            )
        for edge, word in ((begin, "begins"), (end, "ends")):
            if edge not in starts:
                raise bad_request(
                    f"entity {word} in a middle of a UTF-16 symbol at byte offset {starts[edge + 1]}"
                )


def _clean(parsed: Parsed) -> tuple[str, tuple[Entity, ...]]:
    if not parsed.entities:
        return _clean_characters(parsed.text).strip(" \n"), ()
    moved: list[int] = []
    pieces: list[str] = []
    after = 0
    for index, character in enumerate(parsed.text):
        piece = _clean_characters(character)
        if character in "\u200e\u200f" and parsed.text[index + 1 : index + 2] in ("\u200e", "\u200f"):
            piece = "\u200c"
        moved += [after] * (2 if ord(character) > 0xFFFF else 1)
        pieces.append(piece)
        after += _units(piece)
    moved.append(after)
    text = "".join(pieces)
    spans = [(moved[e["offset"]], moved[e["offset"] + e["length"]], e) for e in parsed.entities]
    trimmed = text.rstrip(" \n")
    end = _units(trimmed)
    # Leading blanks go only up to the first entity.
    first = min((begin for begin, stop, _ in spans if stop > begin), default=end)
    lead = min(len(trimmed) - len(trimmed.lstrip(" \n")), first)
    kept = tuple(
        {**entity, "offset": begin - lead, "length": min(stop, end) - begin}
        for begin, stop, entity in sorted(spans, key=lambda span: (span[0], -span[1]))
        if min(stop, end) > begin
    )
    return trimmed[lead:], kept


def _clean_characters(text: str) -> str:
    cleaned = text.translate(_CLEANED)
    return _DIRECTION_RUN.sub(lambda run: "\u200c" * len(run.group()), cleaned)


def _units(text: str) -> int:
    return len(text) + sum(ord(character) > 0xFFFF for character in text)
