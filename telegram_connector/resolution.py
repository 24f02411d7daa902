"""What an operator may say of a message of which nobody knows whether it was sent, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from telegram_connector.deadletter import (
    ATTEMPTS,
    BODY_OMITTED,
    DESCRIPTION,
    ERROR_CODE,
    FIRST_SEEN,
    ORIGINAL,
    REASON,
    STREAM_SEQ,
)
from telegram_connector.envelope import decode, encode, expiry
from telegram_connector.errors import EnvelopeError, LedgerError
from telegram_connector.links import Link
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    PENDING,
    Record,
    key_of,
    payload_hash,
)
from telegram_connector.record import SENT as IS_SENT

Resolution: TypeAlias = Literal["sent", "send-again", "cancel"]
SENT: Resolution = "sent"
SEND_AGAIN: Resolution = "send-again"
CANCEL: Resolution = "cancel"

# After how many ack_waits without a word a send is given up for lost: its lease is over twice, and the
# longest send takes less than one.
ABANDONED_ACK_WAITS = 2

_OF_DEAD_LETTERS = {
    name.lower() for name in (REASON, ERROR_CODE, DESCRIPTION, STREAM_SEQ, ATTEMPTS, FIRST_SEEN, BODY_OMITTED)
}


def read_time(text: str) -> datetime:
    """A time of a record, with its offset.

    Raises:
        LedgerError: It is none.
    """
    try:
        at = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise LedgerError("a record of the ledger has a time that is none") from None
    if at.tzinfo is None:
        raise LedgerError("a record of the ledger has a time without an offset")
    return at


def abandoned(record: Record, now: datetime, ack_wait_seconds: float) -> bool:
    """Whether the connector that began this send is surely gone."""
    patience = timedelta(seconds=ABANDONED_ACK_WAITS * ack_wait_seconds)
    return record.status == IN_FLIGHT and now - read_time(record.updated_at) > patience


def in_doubt(record: Record, now: datetime, ack_wait_seconds: float) -> bool:
    """Whether nobody knows, and no connector is about to know, whether it was sent."""
    return record.status == AMBIGUOUS or abandoned(record, now, ack_wait_seconds)


def resolved(record: Record, how: Resolution, by: str, at: str, message_id: int | None = None) -> Record:
    """The record after an operator's word; one in flight goes through `send_ambiguous`.

    Args:
        by: Who says so, ``user@host``.
        at: Now, RFC 3339.
        message_id: Telegram's id of it, where it was sent and somebody saw it. Its link is missing then.

    Raises:
        LedgerError: It is not in doubt.
    """
    since = record.ambiguous_since or record.updated_at
    if record.status == IN_FLIGHT:
        record = record.to(AMBIGUOUS, at)
    if record.status != AMBIGUOUS:
        raise LedgerError(f"a record that is {record.status} is not in doubt")
    word = {"ambiguous_since": None, "resolved_by": by, "resolved_at": at, "resolution": how}
    if how == SEND_AGAIN:
        return record.to(PENDING, at, **word)
    if how == CANCEL:
        return record.to(CANCELLED, at, **word)
    known = {"message_id": message_id, "link_missing": True} if message_id is not None else {}
    # Telegram had it, if at all, when the answer to its last send failed to come.
    return record.to(IS_SENT, at, sent_at=since, last_error_code=None, last_error=None, **known, **word)


def unfinished(record: Record, how: Resolution, message_id: int | None = None) -> bool:
    """Whether the record has this very word already, and what follows from it may not have been done."""
    if record.resolution != how:
        return False
    if how == SEND_AGAIN:
        return record.status == PENDING
    return record.status == IS_SENT and record.link_missing and record.message_id == message_id


def link_of(record: Record) -> Link | None:
    """What a sent record's message was; None where Telegram's id of it is not known."""
    if record.message_id is None or record.sent_at is None:
        return None
    return Link(
        bot=record.bot,
        message_id=record.message_id,
        msg_id=record.msg_id,
        record=record.key,
        route_id=record.route_id,
        from_member=record.from_member,
        sent_at=record.sent_at,
    )


def is_original(record: Record, payload: bytes) -> bool:
    """Whether these bytes are the message of the record: same id, place, text and options."""
    try:
        envelope = decode(payload)
    except EnvelopeError:
        return False
    return key_of(record.bot, envelope) == record.key and payload_hash(envelope) == record.payload_hash


class Again(NamedTuple):
    """What is published to have a message sent again.

    Attributes:
        expired: The time that was left out, since it is past and nothing would be sent.
    """

    payload: bytes
    headers: dict[str, str]
    expired: str | None = None


def again(payload: bytes, headers: Mapping[str, str], now: float) -> Again:
    """The original once more, under its own msg_id.

    Without ``Nats-Msg-Id``: the stream would take it for a duplicate, and the ledger prevents a double by
    itself. Never larger than the original.

    Args:
        headers: Of the original, or of its dead letter.
        now: Seconds since 1970.
    """
    left_out = ("nats-", ORIGINAL.lower())
    kept = {
        name: value
        for name, value in headers.items()
        if not name.lower().startswith(left_out) and name.lower() not in _OF_DEAD_LETTERS
    }
    envelope = decode(payload)
    expires = expiry(envelope)
    if expires is None or expires > now:
        return Again(payload, kept)
    return Again(encode(msgspec.structs.replace(envelope, expires_at=None)), kept, envelope.expires_at)
