"""The two ends of every parser: the source, read once from front to back, and the text that comes of it."""

from __future__ import annotations

import re

from telegram_connector.errors import MarkupError
from telegram_connector.markup.entity import units

# What Telegram takes for white space; the end of a text counts as a NUL.
SPACES = " \\t\\r\\n\\v"
SPACE = frozenset(" \t\r\n\v\0")
PREFIX = "Bad Request: can't parse entities: "
_LANGUAGE = re.compile(rf"[^{SPACES}\0`]*")


def utf8_length(text: str) -> int:
    """Length in bytes; half a surrogate pair counts as Telegram writes it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Reader:
    """A position in a text that only moves forward, which keeps parsers linear.

    Attributes:
        text: The source.
        at: The position in it, in characters.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        # Looking a little beyond the end finds NULs, as in the original's memory.
        self._padded = text + "\0\0\0"

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def ahead(self, distance: int = 0) -> str:
        """The character at that distance; NUL at the end."""
        return self._padded[self.at + distance]

    def starts(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def take(self, pattern: re.Pattern[str]) -> str:
        """Read what the pattern matches here, perhaps nothing."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def take_until(self, mark: str) -> str | None:
        """Read up to the mark, which is left; None where it does not come any more."""
        begin, end = self.at, self.text.find(mark, self.at)
        if end < 0:
            return None
        self.at = end
        return self.text[begin:end]

    def take_one(self) -> str:
        self.at += 1
        return self._padded[self.at - 1]

    def fault(self, words: str, at: int, after: str | None = None) -> MarkupError:
        """Telegram's refusal, ready to be raised.

        Args:
            words: The beginning of what Telegram says.
            at: The position at fault, in characters.
            after: Where Telegram names the offset: what follows it. None where it names none.
        """
        offset = len(self.text[:at].encode())
        told = words if after is None else f"{words} at byte offset {offset}{after}"
        return MarkupError(PREFIX + told, byte_offset=offset, position=at)


class Writer:
    """The text as it grows, measured in UTF-16 code units and in bytes of UTF-8."""

    def __init__(self) -> None:
        self.units = 0
        self.bytes = 0
        self.origins: list[tuple[int, int]] = []
        self._pieces: list[str] = []
        self._characters = 0

    def add(self, piece: str, position: int) -> None:
        """Append what stood at that position of the source."""
        if piece:
            self.origins.append((self._characters, position))
            self._pieces.append(piece)
            self._characters += len(piece)
            self.units += units(piece)
            self.bytes += utf8_length(piece)

    def mark(self) -> int:
        """A place that `since` reads from."""
        return len(self._pieces)

    def since(self, mark: int) -> str:
        text = "".join(self._pieces[mark:])
        if text:
            # Links within links ask again and again; joined once, it costs them little.
            self._pieces[mark:] = [text]
        return text

    @property
    def last(self) -> str:
        return self._pieces[-1][-1] if self._pieces else ""


def fence_language(reader: Reader) -> str:
    """Read what follows a fence of three backticks: the language, and one line break.

    A word is a language only if white space follows it; otherwise it is left for the text.
    """
    begin = reader.at
    language = reader.take(_LANGUAGE)
    if reader.ended or reader.ahead() == "`":
        language, reader.at = "", begin
    here, after = reader.ahead(), reader.ahead(1)
    if here in "\r\n":
        reader.at += 2 if after in "\r\n" and after != here else 1
    return language
