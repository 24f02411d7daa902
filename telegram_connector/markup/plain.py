"""A marked-up text without its markup, also where Telegram refuses it: what a person would read.

What Telegram can read is taken as it reads it. Of what it refuses, the marks that can be told are dropped and
everything else stays, so that nothing is lost that may be meant. Each text is read from front to back, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from telegram_connector.errors import MarkupError
from telegram_connector.markup.entity import Parsed
from telegram_connector.markup.finish import MAX_CODE_POINTS
from telegram_connector.markup.html import TYPES, read_reference
from telegram_connector.markup.links import ascii_lower
from telegram_connector.markup.parsing import parse
from telegram_connector.markup.reader import Reader

# Tags of web pages that Telegram does not know, and which of all begin a new line.
_OF_PAGES = {
    "br",
    "p",
    "div",
    "hr",
    "ul",
    "ol",
    "li",
    "table",
    "tr",
    "td",
    "th",
    *(f"h{n}" for n in range(1, 7)),
}
_TAGS = {*TYPES, *_OF_PAGES}
_BREAKS = {"br", "hr", "/p", "/div", "/li", "/tr", *(f"/h{n}" for n in range(1, 7))}

_BEFORE_TAG = re.compile("[^<&]+")
_TAG = re.compile(r"<(/?[A-Za-z][A-Za-z0-9\-]*)((?:[ \t\r\n/][^<>]*)?)>")
_HREF = re.compile(r"\shref=(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.I)

_BEFORE_MARK = re.compile(r"[^\\\n_*~|`\[\]>]+")
_MARK = re.compile(r"__|\|\||[_*~]")
_ESCAPED = re.compile(r"\\([\x01-\x7e])")
# What code ends with, by what it begins with; each character can be read in one way only.
_CODE = {
    "```": re.compile(r"```(?:[^\s`\\]*\n)?((?:[^`\\]|\\[\s\S]|`(?!``))*)```"),
    "`": re.compile(r"`((?:[^`\\]|\\[\s\S])*)`"),
}
_ADDRESS = re.compile(r"\(((?:[^)\\]|\\[\s\S])*)\)")

_BEFORE_OLD_MARK = re.compile(r"[^_*`\[\\]+")
_OLD_ADDRESS = re.compile(r"\(([^)]*)\)?")


def plain(text: str, parse_mode: str | None) -> str:
    """What the text says without its markup, with the address of each link in parentheses behind it.

    The addresses are left out where the text would be too long with them. Without a parse mode, or with one
    that Telegram does not know, it is the text as it is.
    """
    said = text
    for with_addresses in (True, False):
        said = _said(text, ascii_lower(parse_mode or "none"), with_addresses)
        if len(said) <= MAX_CODE_POINTS:
            break
    return said


def _said(text: str, mode: str, with_addresses: bool) -> str:
    try:
        return _of_parsed(parse(text, mode), with_addresses)
    except MarkupError:
        lenient = _LENIENT.get(mode)
        return text if lenient is None else lenient(text, with_addresses)


def _of_parsed(parsed: Parsed, with_addresses: bool) -> str:
    if not with_addresses or not any(entity.url for entity in parsed.entities):
        return parsed.text
    raw = parsed.text.encode("utf-16-le", "surrogatepass")
    pieces, at = [], 0
    for entity in sorted(parsed.entities, key=lambda entity: entity.end):
        if entity.url is not None:
            of = raw[2 * entity.offset : 2 * entity.end].decode("utf-16-le", "surrogatepass")
            pieces.append(raw[2 * at : 2 * entity.end].decode("utf-16-le", "surrogatepass"))
            pieces.append(_address(of, entity.url))
            at = entity.end
    pieces.append(raw[2 * at :].decode("utf-16-le", "surrogatepass"))
    return "".join(pieces)


def _address(text: str, url: str) -> str:
    """The address behind a link's text, unless the text says it already or nobody can open it."""
    same = _bare(text) == _bare(url)
    return "" if same or not url or ascii_lower(url).startswith("tg:") else f" ({url})"


def _bare(url: str) -> str:
    return ascii_lower(url).removeprefix("http://").removeprefix("https://").rstrip("/")


def _html(text: str, with_addresses: bool) -> str:
    reader = Reader(text)
    pieces: list[str] = []
    link: tuple[int, str] | None = None  # where its text begins among the pieces, and its address
    while not reader.ended:
        before = reader.take(_BEFORE_TAG)
        if before:
            pieces.append(before)
        elif reader.ahead() == "&":
            pieces.append(read_reference(reader) or reader.take_one())
        elif (tag := _TAG.match(text, reader.at)) and ascii_lower(tag[1].lstrip("/")) in _TAGS:
            reader.at = tag.end()
            name = ascii_lower(tag[1])
            if name == "a":
                href = _HREF.search(tag[2])
                link = (len(pieces), next(filter(None, href.groups()), "")) if href else None
            elif name == "/a" and link is not None:
                if with_addresses:
                    of = pieces[link[0]] if len(pieces) == link[0] + 1 else ""
                    pieces.append(_address(of, _decoded(link[1])))
                link = None
            elif name in _BREAKS:
                pieces.append("\n")
        else:
            pieces.append(reader.take_one())
    return "".join(pieces)


def _decoded(value: str) -> str:
    reader = Reader(value)
    pieces = []
    while not reader.ended:
        pieces.append(read_reference(reader) or reader.take_one())
    return "".join(pieces)


@dataclass
class _Marks:
    """Opening marks that wait for their end, and the text, in which they stand until it comes."""

    pieces: list[str] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)  # by mark: its place among the pieces

    def open(self, mark: str) -> None:
        self.waiting[mark] = len(self.pieces)
        self.pieces.append(mark)

    def close(self, mark: str) -> int | None:
        """Drop the opening mark; its place, None where there is none. What was opened since stays."""
        place = self.waiting.pop(mark, None)
        if place is not None:
            self.pieces[place] = ""
            self.waiting = {other: at for other, at in self.waiting.items() if at < place}
        return place


def _markdown_v2(text: str, with_addresses: bool) -> str:
    reader, marks = Reader(text), _Marks()
    pieces = marks.pieces
    endless: set[str] = set()  # what begins and never ends; it need not be looked for again
    line_start, quoted = True, False
    while not reader.ended:
        at_start, line_start = line_start, False
        before = reader.take(_BEFORE_MARK)
        if before:
            pieces.append(before)
            continue
        character = reader.ahead()
        code = "```" if reader.starts("```") else character
        if character == "\\":
            escaped = reader.take(_ESCAPED)
            pieces.append(escaped[1:] or reader.take_one())
        elif character == "\n":
            pieces.append(reader.take_one())
            line_start, quoted = True, False
        elif character == ">" and at_start:
            reader.at += 1
            quoted = True
        elif code in _CODE and code not in endless and (span := _CODE[code].match(text, reader.at)):
            reader.at = span.end()
            pieces.append(_ESCAPED.sub(r"\1", span[1]))
        elif character == "[":
            reader.at += 1
            marks.open("[")
        elif character == "]":
            _end_link(reader, marks, endless, with_addresses)
        elif mark := reader.take(_MARK):
            ends_quote = mark == "||" and quoted and reader.ahead() in "\n\0"
            if marks.close(mark) is None and not ends_quote:
                marks.open(mark)
        else:
            if code in _CODE:
                endless.add(code)
            pieces.append(reader.take_one())
    return "".join(pieces)


def _end_link(reader: Reader, marks: _Marks, endless: set[str], with_addresses: bool) -> None:
    """A ``]`` in MarkdownV2: the end of a link's text where an address follows, else a bracket."""
    reader.at += 1
    address = None
    if "[" in marks.waiting and reader.ahead() == "(" and "(" not in endless:
        address = _ADDRESS.match(reader.text, reader.at)
        if address is None:
            endless.add("(")
    if address is None:
        marks.pieces.append("]")
        return
    reader.at = address.end()
    place = marks.close("[")
    assert place is not None
    if place and marks.pieces[place - 1].endswith("!"):
        marks.pieces[place - 1] = marks.pieces[place - 1][:-1]  # an emoji or a date
    if with_addresses:
        of = marks.pieces[place + 1] if len(marks.pieces) == place + 2 else ""
        marks.pieces.append(_address(of, _ESCAPED.sub(r"\1", address[1])))


def _markdown(text: str, with_addresses: bool) -> str:
    reader = Reader(text)
    pieces: list[str] = []
    endless: set[str] = set()
    while not reader.ended:
        before = reader.take(_BEFORE_OLD_MARK)
        if before:
            pieces.append(before)
            continue
        mark = "```" if reader.starts("```") else reader.ahead()
        end = "]" if mark == "[" else mark
        if mark == "\\":
            reader.at += 1
            pieces.append(reader.take_one() if reader.ahead() in "_*`[" else mark)
            continue
        stop = -1 if mark in endless else text.find(end, reader.at + len(mark))
        if stop < 0:
            endless.add(mark)
            pieces.append(reader.take_one())
            continue
        inside = text[reader.at + len(mark) : stop]
        reader.at = stop + len(end)
        pieces.append(inside)
        if mark == "[":
            address = reader.take(_OLD_ADDRESS)
            if not address:
                pieces[-1] = f"[{inside}]"
            elif with_addresses:
                pieces.append(_address(inside, address.strip("()")))
    return "".join(pieces)


_LENIENT: dict[str, Callable[[str, bool], str]] = {
    "html": _html,
    "markdownv2": _markdown_v2,
    "markdown": _markdown,
}
