"""What is said to people: counts, and words of strangers made harmless. Pure."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """The text on one line, harmless to a terminal: ids and descriptions come from strangers."""
    return "".join(
        c if unicodedata.category(c)[0] != "C" else c.encode("unicode_escape").decode() for c in text
    )


def counted(number: int, noun: str) -> str:
    """``1 letter``, ``2 letters``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
