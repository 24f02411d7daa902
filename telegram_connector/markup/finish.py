"""What becomes of a text after parsing: checked, cleaned, repaired, trimmed, measured, in Telegram's order.

Facts from tdlib, MessageEntity.cpp and misc.cpp.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from telegram_connector.errors import MarkupError
from telegram_connector.markup import links
from telegram_connector.markup.entity import STYLES, SURROGATE, Entity, Parsed, in_order, units
from telegram_connector.markup.repair import repair

MAX_CODE_POINTS = 4096
MAX_ENTITIES = 100  # tdlib: MAX_USER_ENTITY_COUNT; custom emoji do not count

# Control characters become spaces; these vanish: carriage return, line and direction marks, three combining
# marks.
VANISHING = re.compile("[\r\u2028-\u202e\u030a\u0333\u033f]")
_CLEANED: dict[int, str] = {code: " " for code in range(0x20) if code not in (0x0A, 0x0D)}
_CLEANED.update(dict.fromkeys((0x0D, *range(0x2028, 0x202F), 0x030A, 0x0333, 0x033F), ""))
_DIRECTION_RUN = re.compile("[\u200e\u200f]+(?=[\u200e\u200f])")
_BLANKS = "".join(
    [" \n\ufeff\u00a0\u1680\u180e\u202f\u205f\u2800\u3000\ufffc"]
    + [chr(code) for code in (*range(0x2000, 0x2010), *range(0xE0000, 0xE0080))]
)


def finish(parsed: Parsed) -> Parsed:
    """The text and the entities that are sent.

    Raises:
        MarkupError: Broken Unicode, nothing visible left, or more than 4096 code points.
    """
    if broken := SURROGATE.search(parsed.text):
        raise MarkupError("Bad Request: strings must be encoded in UTF-8", position=broken.start())
    entities = repair(_checked_links(parsed.entities))
    text = _cleaned(parsed.text)
    if VANISHING.search(parsed.text):
        # Without the characters between them, styles may touch.
        entities = repair(_moved(entities, parsed.text))
    trimmed = text.rstrip(" \n")
    entities = in_order(list(_ended(entities, units(trimmed))))
    first = entities[0].offset if entities else len(trimmed)
    lead = min(len(trimmed) - len(trimmed.lstrip(" \n")), first)
    text = trimmed[lead:]
    if not text.strip(_BLANKS):
        raise MarkupError("Bad Request: text must be non-empty")
    if len(text) > MAX_CODE_POINTS:
        raise MarkupError("Bad Request: message is too long")
    return replace(
        parsed,
        text=text,
        entities=tuple(_limited([replace(entity, offset=entity.offset - lead) for entity in entities])),
        origins=(),
    )


def _checked_links(entities: Iterable[Entity]) -> Iterable[Entity]:
    """Addresses and languages are cleaned like texts, and addresses looked at once more."""
    for entity in entities:
        if entity.language is not None:
            yield replace(entity, language=_cleaned(entity.language))
        elif entity.url is not None:
            yield _checked_link(entity, entity.url)
        else:
            yield entity


def _checked_link(entity: Entity, url: str) -> Entity:
    if SURROGATE.search(url):
        words = "Bad Request: messageEntityTextUrl.url must be encoded in UTF-8"
        raise MarkupError(words, position=entity.position)
    url = _cleaned(url)
    user_id = links.user_id(url)
    if user_id is not None:
        return replace(entity, type="text_mention", url=None, user_id=user_id)
    try:
        return replace(entity, url=links.checked(url))
    except links.UnusableLink as unusable:
        words = f"Bad Request: entity URL '{url}' is invalid: {unusable}"
        raise MarkupError(words, position=entity.position) from None


def _cleaned(text: str) -> str:
    return _DIRECTION_RUN.sub(lambda run: "\u200c" * len(run.group()), text.translate(_CLEANED))


def _moved(entities: list[Entity], text: str) -> Iterable[Entity]:
    """The entities after the vanishing characters, each one UTF-16 unit, are gone."""
    gone: list[int] = []
    at = offset = 0
    for found in VANISHING.finditer(text):
        offset += units(text[at : found.start()])
        at = found.start()
        gone.append(offset)
    for entity in entities:
        begin = entity.offset - bisect_left(gone, entity.offset)
        end = entity.end - bisect_left(gone, entity.end)
        yield replace(entity, offset=begin, length=end - begin)


def _ended(entities: list[Entity], end: int) -> Iterable[Entity]:
    """The entities up to the end of the trimmed text."""
    for entity in entities:
        if entity.offset < end:
            yield replace(entity, length=min(entity.end, end) - entity.offset)


def _limited(entities: list[Entity]) -> Iterable[Entity]:
    """The first hundred; styles come last in that count."""
    counted = [entity for entity in entities if entity.type not in (*STYLES, "custom_emoji")]
    counted += [entity for entity in entities if entity.type in STYLES]
    if len(counted) <= MAX_ENTITIES:
        return entities
    dropped = {id(entity) for entity in counted[MAX_ENTITIES:]}
    return [entity for entity in entities if id(entity) not in dropped]
