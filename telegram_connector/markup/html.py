"""HTML as Telegram reads it (facts from tdlib, MessageEntity.cpp): few tags and four references."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from telegram_connector.markup import links
from telegram_connector.markup.build import Builder
from telegram_connector.markup.entity import SURROGATE, Parsed
from telegram_connector.markup.reader import SPACE, SPACES, Reader

TYPES = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("u", "ins"), "underline"),
    **dict.fromkeys(("s", "strike", "del"), "strikethrough"),
    **dict.fromkeys(("span", "tg-spoiler"), "spoiler"),
    "tg-emoji": "custom_emoji",
    "tg-time": "date_time",
    "a": "text_link",
    "pre": "pre",
    "code": "code",
    "blockquote": "blockquote",
}
# Attributes that mean something, and what their values must begin with.
_ATTRIBUTES = {
    ("a", "href"): "",
    ("code", "class"): "language-",
    ("span", "class"): "tg-",
    ("tg-emoji", "emoji-id"): "",
    ("tg-time", "unix"): "",
    ("tg-time", "format"): "",
    ("blockquote", "expandable"): "",
}
_REFERENCES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_MAX_REFERENCE = 9  # characters of a numeric reference, semicolon not counted

_PLAIN = re.compile("[^<&]+")
_TAG = re.compile(rf"[^{SPACES}\0>]*")
_SPACE_RUN = re.compile(rf"[{SPACES}]*")
_ATTRIBUTE = re.compile(rf"[^{SPACES}\0=>/\"']*")
_TOKEN = re.compile(r"[A-Za-z0-9.\-]*")
_QUOTED = {'"': re.compile('[^"&\0]+'), "'": re.compile("[^'&\0]+")}
_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]*)|#([0-9]*)|([A-Za-z]*))")


class _Open(NamedTuple):
    """A start tag; `values` holds what its attributes say."""

    name: str
    values: dict[str, str]
    position: int
    offset: int
    mark: int


def parse_html(text: str) -> Parsed:
    """Parse HTML.

    Raises:
        MarkupError: Telegram would refuse it.
    """
    reader, builder = Reader(text), Builder()
    stack: list[_Open] = []
    while not reader.ended:
        begin = reader.at
        plain = reader.take(_PLAIN)
        if plain:
            builder.text.add(plain, begin)
        elif reader.ahead() == "&":
            builder.text.add(read_reference(reader) or reader.take_one(), begin)
        elif reader.ahead(1) == "/":
            _end_tag(reader, builder, stack)
        else:
            name, values = _start_tag(reader, builder)
            stack.append(_Open(name, values, begin, builder.text.units, builder.text.mark()))
    if stack:
        last = stack[-1]
        raise reader.fault(f'Can\'t find end tag corresponding to start tag "{last.name}"', last.position)
    for number, entity in enumerate(builder.entities):
        if entity.type == "code" and entity.language:
            builder.entities[number] = replace(entity, language=None)
            builder.note(
                entity.position, "the language is lost: it needs <pre> and <code> around the same text"
            )
    parsed = builder.parsed()
    if broken := SURROGATE.search(parsed.text):
        words = (
            "Text contains invalid Unicode characters after decoding HTML entities, "
            "check for unmatched surrogate code units"
        )
        raise reader.fault(words, parsed.position(broken.start()))
    return parsed


def read_reference(reader: Reader) -> str:
    """Decode the reference here; nothing is read if it is none."""
    match = _REFERENCE.match(reader.text, reader.at)
    if match is None:
        return ""
    if match[3] is not None:
        character = _REFERENCES.get(match[3], "")
    elif len(match[0]) > _MAX_REFERENCE:
        character = ""
    else:
        code = int(match[1] or "0", 16) if match[2] is None else int(match[2] or "0")
        character = chr(code) if 0 < code < 0x10FFFF else ""
    if character:
        reader.at = match.end()
        if reader.ahead() == ";":
            reader.at += 1
    return character


def _start_tag(reader: Reader, builder: Builder) -> tuple[str, dict[str, str]]:
    begin = reader.at
    reader.at += 1
    name = links.ascii_lower(reader.take(_TAG))
    if reader.ahead() == "\0":
        raise reader.fault("Unclosed start tag", begin, "")
    if name not in TYPES:
        raise reader.fault(f'Unsupported start tag "{name}"', begin, "")
    values: dict[str, str] = {}
    while reader.ahead() != ">":
        reader.take(_SPACE_RUN)
        if reader.ahead() == ">":
            break
        position = reader.at
        attribute = reader.take(_ATTRIBUTE)
        if not attribute:
            raise reader.fault(f'Empty attribute name in the tag "{name}"', begin, "")
        reader.take(_SPACE_RUN)
        value = None
        if reader.ahead() == "=":
            reader.at += 1
            reader.take(_SPACE_RUN)
            if reader.ahead() != "\0":
                value = _value(reader)
                if reader.ahead() == "\0":
                    raise reader.fault("Unclosed start tag", begin, "")
        if reader.ahead() == "\0":
            raise reader.fault(f'Unclosed start tag "{name}"', begin, "")
        _note_attribute(builder, name, attribute, value, values, position)
    reader.at += 1
    if name == "span" and values.get("class") != "spoiler":
        raise reader.fault('Tag "span" must have class "tg-spoiler"', begin, "")
    return name, values


def _note_attribute(
    builder: Builder, tag: str, attribute: str, value: str | None, values: dict[str, str], position: int
) -> None:
    prefix = _ATTRIBUTES.get((tag, attribute))
    if attribute == "expandable" and prefix is not None:
        values[attribute] = "1"
    elif prefix is not None and value is not None and value.startswith(prefix):
        values[attribute] = value[len(prefix) :]
    else:
        builder.note(position, f'the attribute "{attribute}" of <{tag}> means nothing here')


def _value(reader: Reader) -> str:
    quote = reader.ahead()
    if quote not in _QUOTED:
        begin = reader.at
        value = links.ascii_lower(reader.take(_TOKEN))
        if reader.ahead() not in SPACE and reader.ahead() != ">":
            raise reader.fault("Unexpected end of name token", begin, "")
        return value
    reader.at += 1
    pieces = []
    while reader.ahead() not in (quote, "\0"):
        pieces.append(reader.take(_QUOTED[quote]) or read_reference(reader) or reader.take_one())
    if reader.ahead() == quote:
        reader.at += 1
    return "".join(pieces)


def _end_tag(reader: Reader, builder: Builder, stack: list[_Open]) -> None:
    begin = reader.at
    if not stack:
        raise reader.fault("Unexpected end tag", begin, "")
    reader.at += 2
    found = links.ascii_lower(reader.take(_TAG))
    reader.take(_SPACE_RUN)
    if reader.ahead() != ">":
        raise reader.fault("Unclosed end tag", begin, "")
    reader.at += 1
    opened = stack[-1]
    if found and found != opened.name:
        raise reader.fault("Unmatched end tag", begin, f', expected "</{opened.name}>", found "</{found}>"')
    if builder.text.units > opened.offset:
        _close(reader, builder, opened)
    else:
        builder.note(opened.position, f"<{opened.name}> around nothing is lost")
    stack.pop()


def _close(reader: Reader, builder: Builder, opened: _Open) -> None:
    kind, values = TYPES[opened.name], opened.values
    where = (opened.offset, opened.position)
    if kind == "custom_emoji":
        number = links.emoji_number(values.get("emoji-id", ""))
        if number is None:
            raise reader.fault("Invalid custom emoji identifier specified", opened.position)
        builder.add(kind, *where, custom_emoji_id=number)
    elif kind == "date_time":
        letters = links.date_format(values.get("format", ""))
        if letters is None:
            raise reader.fault("Invalid date format used", opened.position)
        seconds = links.lenient_int32(values.get("unix", ""))
        if seconds > 0:
            builder.add(kind, *where, unix_time=seconds, date_time_format=letters)
        else:
            builder.note(opened.position, "the date is lost: unix must be a number above 0")
    elif kind == "text_link":
        builder.add_link(*where, values.get("href") or builder.text.since(opened.mark))
    elif kind in ("pre", "code"):
        _close_code(builder, opened, kind, values.get("class", ""))
    else:
        builder.add("expandable_blockquote" if "expandable" in values else kind, *where)


def _close_code(builder: Builder, opened: _Open, kind: str, language: str) -> None:
    """``pre`` and ``code`` around the same text are one, whichever is outside."""
    inner = builder.entities[-1] if builder.entities else None
    same = inner is not None and (inner.offset, inner.end) == (opened.offset, builder.text.units)
    if inner is not None and same and kind == "pre" and inner.type == "code" and inner.language:
        builder.entities[-1] = replace(inner, type="pre", position=opened.position)
    elif (
        inner is not None
        and same
        and kind == "code"
        and inner.type == "pre"
        and not inner.language
        and language
    ):
        builder.entities[-1] = replace(inner, language=language, position=opened.position)
    else:
        builder.add(kind, opened.offset, opened.position, language=language or None)
