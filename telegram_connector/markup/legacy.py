"""The old Markdown as Telegram reads it (facts from tdlib, MessageEntity.cpp): no nesting, one error."""

from __future__ import annotations

import re

from telegram_connector.markup.build import Builder
from telegram_connector.markup.entity import Parsed
from telegram_connector.markup.reader import Reader, fence_language, utf8_length

_PLAIN = re.compile(r"[^_*`\[\\]+")
_URL = re.compile(r"[^)]*")
_TYPES = {"_": "italic", "*": "bold", "`": "code"}


def parse_markdown(text: str) -> Parsed:
    """Parse the old Markdown.

    Raises:
        MarkupError: Telegram would refuse it.
    """
    reader, builder = Reader(text), Builder()
    before = _BytesBefore(text)
    while not reader.ended:
        begin = reader.at
        plain = reader.take(_PLAIN)
        if plain:
            builder.text.add(plain, begin)
        elif reader.ahead() == "\\":
            if reader.ahead(1) in "_*`[":
                reader.at += 1
            builder.text.add(reader.take_one(), reader.at - 1)
        else:
            _entity(reader, builder, before)
    return builder.parsed()


class _BytesBefore:
    """How many bytes stand before a position; asked for from front to back."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._bytes = 0

    def __call__(self, position: int) -> int:
        self._bytes += utf8_length(self._text[self._at : position])
        self._at = position
        return self._bytes


def _entity(reader: Reader, builder: Builder, before: _BytesBefore) -> None:
    begin, offset = reader.at, builder.text.units
    written = builder.text.bytes
    end = "```" if reader.starts("```") else {"[": "]"}.get(reader.ahead(), reader.ahead())
    mark = reader.ahead()
    reader.at += 3 if end == "```" else 1
    language = fence_language(reader) if end == "```" else ""
    start = reader.at
    inside = reader.take_until(end)
    if inside is None:
        raise reader.fault("Can't find end of the entity starting", begin, "")
    builder.text.add(inside, start)
    reader.at += len(end)
    if not inside:
        builder.note(begin, f"{end if end != ']' else '[]'} around nothing: the marks vanish")
    elif mark == "[":
        if reader.ahead() == "(":
            url = _address(reader)
        else:
            url = _own_address(inside, before(begin) + 1 - written)
            builder.note(begin, "a link without (address) takes its text for one, and Telegram garbles it")
        builder.add_link(offset, begin, url)
    else:
        builder.add("pre" if end == "```" else _TYPES[mark], offset, begin, language=language or None)


def _address(reader: Reader) -> str:
    """Read an address in parentheses; the last one may be missing."""
    reader.at += 1
    url = reader.take(_URL)
    if not reader.ended:
        reader.at += 1
    return url


def _own_address(text: str, shift: int) -> str:
    """The address of ``[text]``.

    Telegram writes the text into the memory that it reads the address from, `shift` bytes before it; the
    address is therefore a garbled text, except where more bytes of markup came before than it has.
    """
    raw = text.encode()
    if shift > len(raw):
        return text
    return (raw[shift:] + raw[len(raw) - shift :]).decode("utf-8", "surrogateescape")
