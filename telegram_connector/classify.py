"""What an answer of the Bot API means: pure, from HTTP status, headers and body to a disposition.

Parameters first, then ``error_code``, then the HTTP status. Never the wording, which changes from year to
year and may be anything, but for the 400s that are named below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Tried,
    Unavailable,
)

# TDLib clamps every flood and slow-mode wait to 14 days (td/telegram/net/NetQueryDelayer.cpp).
MAX_RETRY_AFTER_SECONDS = 14 * 86_400.0
MAX_DESCRIPTION_LENGTH = 300

# The bot is logged out of this server, or frozen by Telegram: every message gets the same 400.
_DEAD_BOT = ("Logged out", "FROZEN_METHOD_INVALID")
# A code of Telegram's core that the Bot API server does not know becomes a 400 with the raw text.
_DISGUISED_OUTAGE = "Bad Gateway"
# Every refusal of markup begins so, that of 2018 too ("... in message text"); docs/adr/0010.
_UNPARSABLE = "Bad Request: can't parse entities"


def classify(status: int, headers: Mapping[str, str], body: bytes) -> Tried:
    """Return what an answer comes to.

    Args:
        status: HTTP status.
        headers: The answer's headers, in any letter case.
        body: The answer's body, decompressed.
    """
    answer = _json_object(body)
    ok = answer.get("ok")
    if 200 <= status < 300:
        if ok is True:
            return _sent(answer)
        if ok is not False:
            return Ambiguous(f"HTTP {status} without a readable answer", status)

    code = _error_code(answer, status)
    description = _description(answer, code)
    parameters = answer.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}

    new_chat = parameters.get("migrate_to_chat_id")
    if isinstance(new_chat, int) and not isinstance(new_chat, bool) and new_chat:
        return Migrated(str(new_chat), description)
    if code == 504:
        # Something in front gave up waiting; the server behind it may still carry the request out.
        return Ambiguous(description, code)
    asked = _seconds(parameters.get("retry_after"))
    if asked is not None:
        return Transient(code, description, asked)
    if code == 429:
        asked = _from_description(answer)
        return Transient(code, description, _from_header(headers) if asked is None else asked)
    if code >= 500:
        return Transient(code, description, _from_header(headers))
    return _by_client_error(code, description)


def _by_client_error(code: int, description: str) -> Tried:
    words = description.removeprefix("Bad Request: ")
    if code in (401, 404, 421) or (code == 400 and words in _DEAD_BOT):
        return BotFault(code, description)
    if code == 400 and words == _DISGUISED_OUTAGE:
        return Transient(code, description)
    if code == 407:
        # A forwarding proxy wants us to log in. Telegram never saw the message.
        return Unavailable(description, code)
    if code in (408, 425) or not 400 <= code < 500:
        # 408 is what HAProxy and others put on a connection that was idle; it is no verdict on the message.
        return Transient(code, description)
    return Terminal(code, description)


def is_unparsable(refused: Terminal) -> bool:
    """Whether it is the markup that Telegram cannot parse; then nothing was sent, and plain text may be."""
    return refused.error_code == 400 and refused.description.startswith(_UNPARSABLE)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _sent(answer: dict[str, Any]) -> Sent:
    result = answer.get("result")
    result = result if isinstance(result, dict) else {}
    chat = result.get("chat")
    return Sent(
        _int(result.get("message_id")),
        _int(result.get("message_thread_id")),
        _int(chat.get("id")) if isinstance(chat, dict) else None,
    )


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _error_code(answer: dict[str, Any], status: int) -> int:
    code = _int(answer.get("error_code"))
    return code if code is not None and 400 <= code < 600 else status


def _description(answer: dict[str, Any], code: int) -> str:
    words = answer.get("description")
    text = one_line(words) if isinstance(words, str) else ""
    return text or f"HTTP {code} without a description"


def one_line(text: str) -> str:
    """Return ``text`` on one line, printable and at most 300 characters long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(line) > MAX_DESCRIPTION_LENGTH:
        return line[: MAX_DESCRIPTION_LENGTH - 1] + "…"
    return line


def _seconds(value: object) -> float | None:
    """Return a wait in seconds, at most 14 days; None for what is no wait."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before it becomes a float: an int may be too large for one.
    if value != value or value < 0 or value == math.inf:
        return None
    return float(min(value, MAX_RETRY_AFTER_SECONDS))


def _from_description(answer: dict[str, Any]) -> float | None:
    """Return the number that ends the description; the answers of 2016 had it nowhere else."""
    words = answer.get("description")
    number = re.search(r"([0-9]{1,18})\s*$", words) if isinstance(words, str) else None
    return _seconds(int(number[1])) if number else None


def _from_header(headers: Mapping[str, str]) -> float | None:
    """Return the wait in ``Retry-After``: seconds, or a date as seen by the server's own clock."""
    text = _header(headers, "retry-after").strip()
    if re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,9})?", text):
        return _seconds(float(text))
    until, now = _date(text), _date(_header(headers, "date"))
    return _seconds((until - now).total_seconds()) if until and now else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=timezone.utc)


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")
