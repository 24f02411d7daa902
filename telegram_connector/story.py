"""What a record says, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from telegram_connector.projection import Reason
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
from telegram_connector.resolution import SEND_AGAIN, abandoned
from telegram_connector.wording import visible

SHORT = 12  # digits of a key in tables and commands: enough for any ledger


def named(record: Record) -> str:
    """Which message it is: ``m1 (route r, part 1)``."""
    more = [
        f"{name} {value}"
        for name, value in (
            ("route", record.route_id),
            ("topic", record.message_thread_id),
            ("part", f"{record.part}/{record.parts}" if record.parts else record.part),
            ("by", record.from_member),
        )
        if value is not None
    ]
    return visible(record.msg_id + (f" ({', '.join(more)})" if more else ""))


def doubt(record: Record) -> str:
    """Since when and why nobody knows whether it was sent."""
    why = record.last_error or "the connector ended, or nobody heard of it again"
    return visible(f"in doubt since {record.ambiguous_since or record.updated_at}: {why}")


def story(record: Record, now: datetime, ack_wait_seconds: float, *, commands: bool = True) -> str:
    """What became of a message and why, in one or a few sentences.

    Args:
        commands: Whether the command that settles what is in doubt is named.
    """
    return " ".join(_sentences(record, now, ack_wait_seconds, commands))


def _sentences(record: Record, now: datetime, ack_wait_seconds: float, commands: bool) -> Iterator[str]:
    tries = f" after {record.attempts} tries" if record.attempts > 1 else ""
    error = visible(f"{record.last_error or 'unknown'}")
    code = f" ({record.last_error_code})" if record.last_error_code else ""
    command = f"telegram-connector ledger resolve {record.key[:SHORT]} --sent | --send-again | --cancel"
    if record.status == SENT:
        number = f"as {record.message_id} " if record.message_id is not None else ""
        yield f"Sent {number}at {record.sent_at or record.updated_at}{tries}."
        if record.link_missing:
            yield "Its link is not stored."
    elif record.status == CANCELLED and record.resolved_at is None:
        yield visible(_withheld(record))
    elif record.status == CANCELLED:
        yield "Cancelled: not sent any more."
    elif record.status == AMBIGUOUS or abandoned(record, now, ack_wait_seconds):
        settle = f"; settle it with: {command}" if commands else "."
        yield f"I{doubt(record)[1:]}. Nobody knows whether Telegram has it{settle}"
    elif record.status == IN_FLIGHT:
        yield f"On its way to Telegram since {record.updated_at}{tries}."
    elif record.status == TERMINAL:
        yield f"Dropped at {record.updated_at}{tries} because {_reason(record)}: {error}{code}."
    elif record.status == RATE_LIMITED:
        until = f" until {record.next_attempt_at}" if record.next_attempt_at else ""
        yield f"Waits{until}{tries}: Telegram asked to ({error})."
    elif record.status == RETRYABLE:
        yield f"Waits for another try{tries}: it did not reach Telegram ({error}{code})."
    elif record.status == PENDING and not record.attempts and record.resolution != SEND_AGAIN:
        if record.stream_seq is None:
            yield f"Was about to be published at {record.updated_at}, and nobody confirmed that it was."
        else:
            yield f"Published as sequence {record.stream_seq}; no connector has begun yet."
    elif record.status == PENDING and record.resolution != SEND_AGAIN:
        yield f"Waits for another try{tries}{f': {error}{code}' if record.last_error else ''}."
    elif record.status == PENDING:
        yield "Waits to be sent again; no connector has begun yet."
    if record.resolved_at is not None:
        yield visible(f"({record.resolved_by} said {record.resolution} at {record.resolved_at}.)")


def _withheld(record: Record) -> str:
    """Why a message may not leave, in the projection's sentence where the reason is one of its own."""
    words = {reason.value: reason.words for reason in Reason}.get(record.reason or "")
    decision = record.visibility_decision_id
    notes = [record.last_error, f"decision {decision}" if decision else None]
    more = f" ({', '.join(note for note in notes if note)})" if any(notes) else ""
    if words is not None:
        return f"Withheld: {words}{more}"
    return f"Withheld because {record.reason or 'of no reason that is recorded'}{more}."


def _reason(record: Record) -> str:
    reasons = {
        "refused": "Telegram refused it",
        "gave_up": "it failed too often",
        "expired": "it was too old",
        "unreadable": "it could not be read",
        "conflict": "its msg_id was used before for something else",
    }
    return reasons.get(record.reason or "refused", visible(str(record.reason)))
