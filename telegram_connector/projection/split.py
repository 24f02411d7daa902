"""A long text in parts, at borders of paragraphs, lines and words, and what became of the parts together."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

_JOINER = "\u200d"


def split(text: str, size: int) -> list[str]:
    """Cut the text into parts of at most `size` code points, none of them blank.

    Each ends at the last border of a paragraph in its second half, else of a line, else of a word, else
    between two characters that do not belong together, else anywhere. Only white space at the borders is
    lost.

    Args:
        size: At least 2.
    """
    parts = []
    begin = 0
    while begin < len(text):
        end = _end(text, begin, size)
        part = text[begin:end].strip("\n").rstrip()
        if part.strip():
            parts.append(part)
        begin = _behind(text, end)
    return parts


def _behind(text: str, border: int) -> int:
    """Where the text goes on behind a border: line ends are passed, or blanks, not the next line's indent."""
    begin = border
    while begin < len(text) and text[begin].isspace() and (text[begin] == "\n") == (text[border] == "\n"):
        if _extends(text[begin + 1 : begin + 2]):
            break  # a mark sits on this blank
        begin += 1
    return begin


def _end(text: str, begin: int, size: int) -> int:
    """Where the part that begins at `begin` ends."""
    last = begin + size
    if last >= len(text):
        return len(text)
    half = begin + size // 2
    for border in ("\n\n", "\n"):
        # The border itself does not count: it may stand just behind the last character.
        if (found := text.rfind(border, half, last + len(border))) != -1:
            return found
    for place in range(last, half, -1):
        if text[place].isspace() and not _extends(text[place + 1 : place + 2]):
            return place
    return next((place for place in range(last, half, -1) if not _together(text, place, begin)), last)


def _together(text: str, place: int, begin: int) -> bool:
    """Whether the characters before and at `place` are seen as one; an approximation of UAX #29.

    Args:
        begin: Where the part begins, which is between two that are not.
    """
    before, after = text[place - 1], text[place]
    if (
        _extends(after)
        or before == _JOINER
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    ):
        return True
    if not (_regional(before) and _regional(after)):
        return False
    run = place  # flags are pairs, counted from where the run begins
    while run > begin and _regional(text[run - 1]):
        run -= 1
    return (place - run) % 2 == 1


def _extends(character: str) -> bool:
    """Whether it belongs to the character before: marks, joiners, skin tones, tags, vowels of a syllable."""
    if not character:
        return False
    code = ord(character)
    return (
        character == _JOINER
        or unicodedata.category(character).startswith("M")
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
        or 0x1160 <= code <= 0x11FF
    )


def _regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


@dataclass(frozen=True)
class GroupState:
    """What became of the parts of one message, each by its number, from 1.

    Attributes:
        sent: Those that Telegram took.
        in_doubt: Those of which it is not known.
        failed: Those that will not be sent: refused, given up, or cancelled.
        pending: All others: not sent yet, or nothing on record.
    """

    sent: tuple[int, ...]
    in_doubt: tuple[int, ...]
    failed: tuple[int, ...]
    pending: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether all of it was sent."""
        return not (self.in_doubt or self.failed or self.pending)


_SETTLED = {
    "sent": "sent",
    "send_ambiguous": "in_doubt",
    "failed_terminal": "failed",
    "cancelled": "failed",
}


def group_state(parts: int, statuses: Mapping[int, str]) -> GroupState:
    """What became of a message in `parts` parts.

    Args:
        parts: How many there are.
        statuses: By part, the status on record, in the ledger's words. No part hangs on another.
    """
    found: dict[str, list[int]] = {"sent": [], "in_doubt": [], "failed": [], "pending": []}
    for part in range(1, parts + 1):
        found[_SETTLED.get(statuses.get(part, ""), "pending")].append(part)
    return GroupState(**{name: tuple(numbers) for name, numbers in found.items()})
