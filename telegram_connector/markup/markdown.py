"""MarkdownV2 as Telegram reads it (facts from tdlib, MessageEntity.cpp): a stack of marks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from telegram_connector.markup import links
from telegram_connector.markup.build import Builder
from telegram_connector.markup.entity import Parsed
from telegram_connector.markup.reader import Reader, fence_language

RESERVED = "_*[]()~`>#+-=|{}.!"

_PLAIN = re.compile(rf"[^\\\n{re.escape(RESERVED)}]+")
_PLAIN_CODE = re.compile(r"[^\\`]+")
_URL = re.compile(r"(?:[^)\\]+|\\[\x01-\x7e]?)*")
_ESCAPED = re.compile(r"\\([\x01-\x7e])")

# Each kind of mark by what its opening is, longest first, and what closes it.
_OPENINGS = {
    "__": "Underline",
    "_": "Italic",
    "*": "Bold",
    "~": "Strikethrough",
    "||": "Spoiler",
    "```": "Pre",
    "`": "Code",
    "![": "CustomEmoji",
    "[": "TextUrl",
}
_OPENING = re.compile("|".join(map(re.escape, _OPENINGS)))
_CLOSINGS = {kind: mark for mark, kind in _OPENINGS.items()} | {
    "CustomEmoji": "]",
    "TextUrl": "]",
    "PreCode": "```",
}
_TYPES = {
    **{
        kind: kind.lower()
        for kind in ("Bold", "Italic", "Underline", "Strikethrough", "Spoiler", "Code", "Pre")
    },
    "PreCode": "pre",
}
_CODE = ("Code", "Pre", "PreCode")


class _Open(NamedTuple):
    kind: str  # the name that Telegram's errors use
    position: int
    offset: int
    mark: int
    language: str = ""


@dataclass
class _State:
    reader: Reader
    builder: Builder = field(default_factory=Builder)
    stack: list[_Open] = field(default_factory=list)
    in_quote: bool = False
    may_quote: bool = True  # at the start of a line

    @property
    def kind(self) -> str:
        return self.stack[-1].kind if self.stack else ""

    def open(self, kind: str, position: int, language: str = "") -> None:
        text = self.builder.text
        self.stack.append(_Open(kind, position, text.units, text.mark(), language))

    def unclosed(self) -> Exception:
        last = self.stack[-1]
        return self.reader.fault(f"Can't find end of {last.kind} entity", last.position, "")


def parse_markdown_v2(text: str) -> Parsed:
    """Parse MarkdownV2.

    Raises:
        MarkupError: Telegram would refuse it.
    """
    state = _State(Reader(text))
    while not state.reader.ended:
        _step(state)
    if state.in_quote:
        _end_last_quote(state)
    if state.stack:
        raise state.unclosed()
    return state.builder.parsed()


def _step(state: _State) -> None:
    reader, text = state.reader, state.builder.text
    begin = reader.at
    character = reader.ahead()
    plain = reader.take(_PLAIN_CODE if state.kind in _CODE else _PLAIN)
    if plain:
        text.add(plain, begin)
        # A carriage return leaves a line's start what it is.
        state.may_quote = state.may_quote and not plain.strip("\r")
    elif character == "\\":
        reader.at += 1
        if "\0" < reader.ahead() <= "\x7e":
            character = reader.take_one()
        text.add(character, reader.at - 1)
        if character != "\r":
            state.may_quote = character == "\n"
    elif _ends_quote(state, character):
        _end_quote_line(state)
    elif _closes(state):
        _close(state)
    else:
        _open(state)


def _ends_quote(state: _State, character: str) -> bool:
    return state.in_quote and character == "\n" and state.reader.ahead(1) != ">"


def _closes(state: _State) -> bool:
    mark = _CLOSINGS.get(state.kind)
    # Two underscores are never read as the end of italic and something more.
    if mark is None or (mark == "_" and state.reader.starts("__")):
        return False
    return state.reader.starts(mark)


def _open(state: _State) -> None:
    reader, begin = state.reader, state.reader.at
    character = reader.ahead()
    if character == "\n":
        state.builder.text.add(reader.take_one(), begin)
        state.may_quote = True
        return
    if character == ">" and state.may_quote:
        if not state.in_quote:
            state.in_quote = True
            state.open("BlockQuote", begin)
        reader.at += 1
        return
    mark = reader.take(_OPENING)
    if not mark:
        words = f"Character '{character}' is reserved and must be escaped with the preceding '\\'"
        raise reader.fault(words, begin)
    if mark != "```":
        state.open(_OPENINGS[mark], begin)
        return
    language = fence_language(reader)
    state.open("PreCode" if language else "Pre", begin, language)


def _close(state: _State) -> None:
    reader, builder, opened = state.reader, state.builder, state.stack[-1]
    reader.at += len(_CLOSINGS[opened.kind])
    empty = builder.text.units == opened.offset
    where = (opened.offset, opened.position)
    if opened.kind == "CustomEmoji":
        _close_special(state, empty)
    elif opened.kind == "TextUrl":
        url = _url(reader) if reader.ahead() == "(" else builder.text.since(opened.mark)
        if empty:
            builder.note(opened.position, "a link around nothing is lost")
        else:
            builder.add_link(*where, url)
    elif not empty:
        builder.add(_TYPES[opened.kind], *where, language=opened.language or None)
    elif not _is_separator(reader, opened):
        builder.note(opened.position, f"{_TYPES[opened.kind]} around nothing: the marks vanish")
    state.stack.pop()


def _is_separator(reader: Reader, opened: _Open) -> bool:
    """Whether it is the ``**`` that parts the end of italic from the end of underline."""
    before = reader.text[max(0, opened.position - 1) : opened.position]
    return opened.kind == "Bold" and before == "_" and reader.starts("_")


def _close_special(state: _State, empty: bool) -> None:
    reader, builder, opened = state.reader, state.builder, state.stack[-1]
    if reader.ahead() != "(":
        raise reader.fault("The entity must contain a tg://emoji or tg://time URL", opened.position)
    url = _url(reader)
    emoji, date = links.custom_emoji_id(url), links.date_time(url)
    if emoji is None and date is None:
        raise reader.fault("Invalid tg://emoji or tg://time URL specified", opened.position)
    if empty:
        builder.note(opened.position, "an emoji or date around nothing is lost")
    elif emoji is not None:
        builder.add("custom_emoji", opened.offset, opened.position, custom_emoji_id=emoji)
    elif date is not None:
        seconds, letters = date
        builder.add("date_time", opened.offset, opened.position, unix_time=seconds, date_time_format=letters)


def _url(reader: Reader) -> str:
    """Read an address in parentheses."""
    reader.at += 1
    begin = reader.at
    url = reader.take(_URL)
    if reader.ended:
        raise reader.fault("Can't find end of a URL", begin, "")
    reader.at += 1
    return _ESCAPED.sub(r"\1", url)


def _end_quote_line(state: _State) -> None:
    """A line break that no ``>`` follows: it belongs to the quote and ends it."""
    reader, opened = state.reader, state.stack[-1]
    kind = "blockquote"
    if opened.kind == "Spoiler" and _is_expandable_mark(state, opened):
        state.stack.pop()
        kind = "expandable_blockquote"
    if state.kind != "BlockQuote":
        raise state.unclosed()
    state.builder.text.add("\n", reader.at)
    reader.at += 1
    _end_quote(state, kind)
    state.may_quote = True


def _is_expandable_mark(state: _State, opened: _Open) -> bool:
    distance = state.reader.at - opened.position
    return distance == 2 or (distance == 3 and state.builder.text.last == "\r")


def _end_last_quote(state: _State) -> None:
    """The text ends within a quote."""
    opened = state.stack[-1]
    kind = "blockquote"
    if opened.kind == "Spoiler" and opened.position == len(state.reader.text) - 2:
        state.stack.pop()
        kind = "expandable_blockquote"
    if state.kind == "BlockQuote":
        _end_quote(state, kind)


def _end_quote(state: _State, kind: str) -> None:
    quote = state.stack.pop()
    state.in_quote = False
    if state.builder.text.units > quote.offset:
        state.builder.add(kind, quote.offset, quote.position)
