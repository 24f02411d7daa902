"""Which entities may be where: cut, merged or dropped as Telegram does it before sending.

Facts from tdlib, MessageEntity.cpp: links, mentions, emoji, code and dates never overlap, the first wins;
quotes neither; styles are cut where another style or another entity begins or ends, and vanish inside code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from telegram_connector.markup.entity import QUOTES, STYLES, VERBATIM, Entity, in_order

_FAR = 1 << 62


def repair(entities: Iterable[Entity]) -> list[Entity]:
    """The entities that remain, in order."""
    ordered = in_order([entity for entity in entities if entity.length > 0])
    styles = [entity for entity in ordered if entity.type in STYLES]
    quotes = _apart(entity for entity in ordered if entity.type in QUOTES)
    others = _apart(entity for entity in ordered if entity.type not in (*STYLES, *QUOTES))
    firm = in_order([*_within_or_outside(others, quotes), *quotes])
    return in_order([*firm, *_cut(styles, firm)])


def _apart(entities: Iterable[Entity]) -> list[Entity]:
    """The ones that begin when the one before has ended."""
    kept: list[Entity] = []
    for entity in entities:
        if not kept or entity.offset >= kept[-1].end:
            kept.append(entity)
    return kept


def _within_or_outside(entities: list[Entity], quotes: list[Entity]) -> Iterator[Entity]:
    """The ones that no quote's border runs through."""
    number = 0
    for entity in entities:
        while number < len(quotes) and quotes[number].end <= entity.offset:
            number += 1
        if number == len(quotes):
            yield entity
            continue
        quote = quotes[number]
        if quote.end >= entity.end and not entity.offset < quote.offset < entity.end:
            yield entity


def _cut(styles: list[Entity], firm: list[Entity]) -> Iterator[Entity]:
    """The pieces that styles fall into."""
    running: dict[str, Entity] = {}  # by type: what is left of a style that has begun
    number = 0
    for border, verbatim in _borders(firm):
        pieces: list[Entity] = []
        while number < len(styles) and styles[number].offset < border:
            style = styles[number]
            number += 1
            before = running.get(style.type)
            if before is not None and style.offset <= before.end:
                length = max(before.end, style.end) - before.offset
                running[style.type] = replace(before, length=length)
            else:
                pieces += _flush(running, style.offset)
                running[style.type] = style
        pieces += _flush(running, border)
        if not verbatim:
            yield from pieces


def _borders(firm: list[Entity]) -> Iterator[tuple[int, bool]]:
    """Where other entities begin and end, and whether what lies before is inside code or a date."""
    open_ones: list[Entity] = []
    for entity in firm:
        while open_ones and open_ones[-1].end <= entity.offset:
            ended = open_ones.pop()
            yield ended.end, ended.type in VERBATIM
        yield entity.offset, False
        open_ones.append(entity)
    while open_ones:
        ended = open_ones.pop()
        yield ended.end, ended.type in VERBATIM
    yield _FAR, False


def _flush(running: dict[str, Entity], border: int) -> Iterator[Entity]:
    """What lies before the border; the rest goes on running."""
    for kind, style in list(running.items()):
        if style.offset >= border:
            continue
        if style.end <= border:
            del running[kind]
            yield style
        else:
            running[kind] = replace(style, offset=border, length=style.end - border)
            yield replace(style, length=border - style.offset)
