"""What becomes of a text in one look: taken or refused, and what is lost on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from telegram_connector.errors import MarkupError
from telegram_connector.markup.entity import Notice, Parsed
from telegram_connector.markup.parsing import check
from telegram_connector.markup.warn import warnings


@dataclass(frozen=True)
class Verdict:
    """What Telegram would say to a text.

    Attributes:
        source: The text as it was given.
        fault: Why it would be refused; None where it would be taken.
        notices: What would be lost or changed without a word; empty where it would be refused.
        sent: What would be sent; None where it would be refused.
    """

    source: str
    fault: MarkupError | None = None
    notices: tuple[Notice, ...] = ()
    sent: Parsed | None = None

    def as_json(self) -> dict[str, Any]:
        """``{ok, fault, warnings, text, entities}``; positions in characters, lines and columns from 1."""
        fault = None
        if self.fault is not None:
            place = _place(self.source, self.fault.position)
            fault = {"description": self.fault.description, **place, "byte_offset": self.fault.byte_offset}
        return {
            "ok": self.fault is None,
            "fault": fault,
            "warnings": [
                {"words": notice.words, **_place(self.source, notice.position)} for notice in self.notices
            ],
            "text": self.sent.text if self.sent is not None else None,
            "entities": [entity.as_json() for entity in self.sent.entities] if self.sent is not None else [],
        }


def judge(text: str, parse_mode: str | None) -> Verdict:
    """Look at a text as ``sendMessage`` would; `parse_mode` as for ``parse``."""
    try:
        sent = check(text, parse_mode)
        return Verdict(text, notices=warnings(text, parse_mode), sent=sent)
    except MarkupError as error:
        return Verdict(text, fault=error)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Both from 1; columns are characters."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _place(text: str, position: int | None) -> dict[str, int | None]:
    if position is None:
        return {"position": None, "line": None, "column": None}
    line, column = line_and_column(text, position)
    return {"position": position, "line": line, "column": column}
