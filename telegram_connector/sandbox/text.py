"""What becomes of a text: parsed, cleaned, trimmed, measured; in Telegram's order and words.

All but the reading of given entities is `markup`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from telegram_connector import markup
from telegram_connector.errors import MarkupError
from telegram_connector.markup.links import date_format
from telegram_connector.sandbox.answers import Refused, bad_request, refusal

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
_MAX_OFFSET = 1_000_000  # tdlib, MessageEntity.cpp

T = TypeVar("T")


def read(params: Mapping[str, str]) -> markup.Parsed:
    """The text of a call after the checks that come before the chat is looked at.

    Raises:
        Refused: Absent or empty, too many bytes, unknown parse mode, a fault of markup, bad entities.
    """
    mode = params.get("parse_mode", "")
    try:
        parsed = markup.parse(params.get("text", ""), mode)
    except MarkupError as error:
        raise _refused(error) from None
    if mode.lower() in ("", "none"):
        return replace(parsed, entities=_read_entities(params.get("entities", "")))
    return parsed


def finish(parsed: markup.Parsed) -> markup.Parsed:
    """What is sent of a text.

    Raises:
        Refused: Not UTF-8, an entity outside the text, nothing visible left, or more than 4096 code points.
    """
    _check_bounds(parsed)
    try:
        return markup.finish(parsed)
    except MarkupError as error:
        raise _refused(error) from None


def shown(entity: markup.Entity) -> dict[str, Any]:
    """The Bot API's MessageEntity object."""
    value = entity.as_json()
    user_id = value.pop("user_id", None)
    if user_id is not None:
        value["user"] = {"id": user_id, "is_bot": False, "first_name": f"User {user_id}"}
    return value


def _refused(error: MarkupError) -> Refused:
    return Refused(refusal(400, error.description))


def _read_entities(value: str) -> tuple[markup.Entity, ...]:
    try:
        items = json.loads(value) if value else []
    except (ValueError, RecursionError):
        # Telegram ignores what is no JSON here, without a word.
        return ()
    if not isinstance(items, list):
        return ()
    return tuple(entity for item in items if (entity := _read_entity(item)) is not None)


def _read_entity(item: Any) -> markup.Entity | None:
    if not isinstance(item, dict):
        raise _unreadable("expected an Object")
    offset, length = _field(item, "offset", int), _field(item, "length", int)
    kind = item.get("type")
    if kind in _DETECTED:
        return None
    if kind not in _ENTITY_TYPES:
        raise _unreadable("Unsupported type specified")
    return markup.Entity(str(kind), offset, length, **_details(str(kind), item))


def _details(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "pre" and item.get("language"):
        return {"language": _field(item, "language", str)}
    if kind == "text_link":
        return {"url": _field(item, "url", str)}
    if kind == "text_mention":
        return {"user_id": _field(_field(item, "user", dict), "id", int)}
    if kind == "custom_emoji":
        return {"custom_emoji_id": _field(item, "custom_emoji_id", str)}
    if kind == "date_time":
        letters = date_format(str(item.get("date_time_format") or ""))
        if letters is None:
            raise _unreadable("Invalid date-time format specified")
        return {"unix_time": _field(item, "unix_time", int), "date_time_format": letters}
    return {}


def _field(item: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = item.get(name)
    if not isinstance(value, kind):
        raise _unreadable(f'Can\'t find field "{name}"')
    return value


def _unreadable(words: str) -> Refused:
    return bad_request(f"can't parse MessageEntity: {words}")


def _check_bounds(parsed: markup.Parsed) -> None:
    if not parsed.entities:
        return
    for entity in parsed.entities:
        for name, number in (("offset", entity.offset), ("length", entity.length)):
            if not 0 <= number <= _MAX_OFFSET:
                raise bad_request(f"receive an entity with incorrect {name} {number}")
    # Where each UTF-16 offset that begins a character lies in bytes; the middle of a pair has no entry.
    starts = {0: 0}
    units = size = 0
    for character in parsed.text:
        units += 2 if ord(character) > 0xFFFF else 1
        size += len(character.encode("utf-8", "surrogatepass"))
        starts[units] = size
    for entity in sorted(parsed.entities, key=lambda e: (e.offset, -e.length)):
        begin, end = entity.offset, entity.end
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
