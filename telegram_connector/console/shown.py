"""Letters, records and links as the page gets them: JSON, and no text of a message. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from telegram_connector.bridge.archive import Kept
from telegram_connector.clock import timestamp
from telegram_connector.letters import ADVICE, DEFAULT_CHAT, Row
from telegram_connector.links import Link
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    PENDING,
    RATE_LIMITED,
    RETRYABLE,
    SENT,
    TERMINAL,
    Record,
)
from telegram_connector.record import shown as fields_of
from telegram_connector.resolution import SEND_AGAIN, abandoned, in_doubt, unfinished
from telegram_connector.story import named, story

_STATES: Mapping[str, str] = {
    PENDING: "Waits to be sent",
    RATE_LIMITED: "Held by Telegram",
    RETRYABLE: "Did not reach Telegram, waits for another try",
    AMBIGUOUS: "In doubt",
    TERMINAL: "Dropped",
}
_SAID: Mapping[str, str] = {
    "sent": "taken as sent",
    SEND_AGAIN: "to be sent again",
    "cancel": "cancelled",
}
NOBODY_SAID = ("Nobody said why.", "Look at its headers.")


def letter(row: Row) -> dict[str, Any]:
    """A dead letter, as `dead list` has it."""
    found, mark = row.letter, row.mark
    what, todo = ADVICE.get(found.reason, NOBODY_SAID)
    return {
        "seq": found.seq,
        "stored_at": found.stored_at,
        "revision": row.seen.revision,
        "reason": found.reason,
        "what": what,
        "todo": todo,
        "msg_id": found.msg_id,
        "chat": found.chat or DEFAULT_CHAT,
        "kind": found.kind,
        "error_code": found.error_code,
        "description": found.description,
        "attempts": found.attempts,
        "dead_at": timestamp(found.dead_at.timestamp()),
        "status": row.status,
        "by": mark.by if mark else None,
        "at": mark.at if mark else None,
        "why": mark.why if mark else None,
        "resent_as": mark.msg_id if mark else None,
    }


def record(kept: Kept[Record], now: datetime, ack_wait_seconds: float) -> dict[str, Any]:
    """A record of the ledger with its story."""
    found = kept.value
    assert found is not None
    return {
        **fields_of(found),
        "revision": kept.revision,
        "name": named(found),
        "story": story(found, now, ack_wait_seconds, commands=False),
        "in_doubt": in_doubt(found, now, ack_wait_seconds),
        "to_finish": half_done(found),
        "withheld": is_withheld(found),
    }


def half_done(found: Record) -> str | None:
    """The word that was said and whose consequence may be missing; None for none."""
    if found.status == PENDING and unfinished(found, SEND_AGAIN):
        return SEND_AGAIN
    if found.status == SENT and unfinished(found, "sent", found.message_id):
        return "sent"
    return None


def is_withheld(found: Record) -> bool:
    """Whether the projection let it not leave."""
    return found.status == CANCELLED and found.resolved_at is None


def past(found: Record, now: datetime, ack_wait_seconds: float) -> Iterator[tuple[str, str]]:
    """What happened to a record's message: (when, what), in no order."""
    if is_withheld(found):
        yield found.created_at, "Withheld: it was not published"
    elif found.attempts:
        yield found.created_at, "First seen"
    else:
        yield found.created_at, "Published"
    if found.ambiguous_since:
        yield found.ambiguous_since, f"Its answer was lost: {found.last_error or 'no reason is recorded'}"
    if found.resolved_at:
        words: dict[str, str] = {
            "sent": "taken as sent",
            SEND_AGAIN: "to be sent again",
            "cancel": "cancelled",
        }
        said = words.get(found.resolution or "", found.resolution or "")
        yield found.resolved_at, f"Settled by {found.resolved_by}: {said}"
    if found.sent_at:
        number = f" as message {found.message_id}" if found.message_id is not None else ""
        yield found.sent_at, f"Sent{number}"
    if found.next_attempt_at:
        yield found.next_attempt_at, "Tried again, not before this"
    if found.status == IN_FLIGHT:
        late = abandoned(found, now, ack_wait_seconds)
        yield found.updated_at, "A send began, and nobody heard of it again" if late else "A send began"
    elif found.status not in (SENT, CANCELLED) and found.updated_at != found.ambiguous_since:
        why = f": {found.last_error}" if found.last_error else ""
        yield found.updated_at, f"{_STATES.get(found.status, found.status)}{why}"


def link(found: Link) -> dict[str, Any]:
    """A link."""
    fields: dict[str, Any] = msgspec.structs.asdict(found)
    return fields
