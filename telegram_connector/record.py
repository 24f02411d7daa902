"""The ledger's record of one delivery: what identifies it, how far it got, and what may come next. Pure.

Telegram has no idempotency key, so a lost answer cannot be told from a lost request. The record is written
before the request leaves and after its answer came; what is found in between was perhaps sent.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import msgspec

from telegram_connector.clock import timestamp
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Tried,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import LedgerError

PROVIDER = "telegram"

PENDING = "pending"
IN_FLIGHT = "send_in_flight"
SENT = "sent"
RATE_LIMITED = "rate_limited"
AMBIGUOUS = "send_ambiguous"
RETRYABLE = "failed_retryable_before_send"
TERMINAL = "failed_terminal"
CANCELLED = "cancelled"

# From the seeds' state machine; what is not listed must not happen.
TRANSITIONS: dict[str, frozenset[str]] = {
    PENDING: frozenset({IN_FLIGHT, RETRYABLE, TERMINAL, CANCELLED}),
    IN_FLIGHT: frozenset({SENT, RATE_LIMITED, AMBIGUOUS, TERMINAL, RETRYABLE, PENDING}),
    RATE_LIMITED: frozenset({PENDING, IN_FLIGHT, TERMINAL, CANCELLED}),
    RETRYABLE: frozenset({PENDING, IN_FLIGHT, TERMINAL, CANCELLED}),
    AMBIGUOUS: frozenset({SENT, PENDING, CANCELLED, TERMINAL}),
    SENT: frozenset(),
    TERMINAL: frozenset(),
    CANCELLED: frozenset({PENDING}),  # what a projection withheld may be published by hand
}
STATUSES = tuple(TRANSITIONS)
INTERRUPTED = "the connector ended before the answer came"
_OPTIONS = ("message_thread_id", "reply_to_message_id", "reply_to", "disable_notification", "link_preview")


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One delivery of one message to one chat; no text of it and no chat id in the clear.

    Times are RFC 3339 in UTC.

    Attributes:
        key: See `key_of`.
        provider: ``"telegram"``.
        bot: The bot's id.
        msg_id: The publisher's idempotency key.
        payload_hash: See `payload_hash`.
        chat_hash: See `chat_hash`; of the chat that it was last sent to.
        message_thread_id: The topic.
        route_id: The publisher's route, where there is one.
        from_member: Who said it, where the projection named somebody.
        group: What a split text's parts have in common.
        part: Which of them this is, from 1.
        parts: How many there are.
        visibility_decision_id: The projection's decision that let it leave, or withheld it.
        text_hash: Of the local text that was decided about; tells an edit.
        status: One of `STATUSES`.
        reason: Why it was dropped or withheld: a dead letter's reason, or the projection's.
        message_id: Telegram's id of it, once known.
        reply_to: Telegram's id of the message that it replies to.
        attempts: How many sends were begun.
        next_attempt_at: Not before that will it be tried again.
        ambiguous_since: Since when nobody knows whether it was sent.
        last_error_code: Telegram's, or the HTTP status; 0 where it never got that far.
        last_error: Telegram's words.
        link_missing: It was sent, and its link is not stored yet.
        delayed: Pacing kept it waiting for long.
        stream_seq: Its sequence in the stream, at its last delivery.
        created_at: When it was first seen.
        updated_at: When the record was last written.
        sent_at: When Telegram had it.
        resolved_by: Who settled by hand what was in doubt.
        resolved_at: When.
        resolution: What they said: ``sent``, ``send-again`` or ``cancel``.
        nonce: Of the last write: tells whether a write that nobody confirmed is the one that is stored.
    """

    key: str
    provider: str = PROVIDER
    bot: str
    msg_id: str
    payload_hash: str
    chat_hash: str
    message_thread_id: int | None = None
    route_id: str | None = None
    from_member: str | None = None
    group: str | None = None
    part: int | None = None
    parts: int | None = None
    visibility_decision_id: str | None = None
    text_hash: str | None = None
    status: str
    reason: str | None = None
    message_id: int | None = None
    reply_to: int | None = None
    attempts: int = 0
    next_attempt_at: str | None = None
    ambiguous_since: str | None = None
    last_error_code: int | None = None
    last_error: str | None = None
    link_missing: bool = False
    delayed: bool = False
    stream_seq: int | None = None
    created_at: str
    updated_at: str
    sent_at: str | None = None
    resolved_by: str | None = None
    resolved_at: str | None = None
    resolution: str | None = None
    nonce: str = ""

    def to(self, status: str, at: str, **changes: Any) -> Record:
        """The record in its next state, written at `at`.

        Raises:
            LedgerError: The state machine has no such transition.
        """
        if status not in TRANSITIONS[self.status]:
            raise LedgerError(f"a record that is {self.status} cannot become {status}")
        return msgspec.structs.replace(self, status=status, updated_at=at, **changes)


_decoder = msgspec.json.Decoder(Record)
_encoder = msgspec.json.Encoder()


def decode(value: bytes) -> Record:
    """Read a record.

    Raises:
        LedgerError: It cannot be read, or its status is none.
    """
    try:
        record = _decoder.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LedgerError(f"a record of the ledger cannot be read: {type(error).__name__}") from None
    if record.status not in TRANSITIONS:
        raise LedgerError("a record of the ledger has a status that this version does not know")
    return record


def encode(record: Record) -> bytes:
    """Write a record."""
    return _encoder.encode(record)


def shown(record: Record) -> dict[str, Any]:
    """All of a record for people and programs, by the field names of the design, absent ones as None."""
    fields: dict[str, Any] = msgspec.structs.asdict(record)
    fields.pop("nonce")
    return fields


def key_of(bot: str, envelope: TelegramOutbound) -> str:
    """What identifies a delivery: the same message to the same place has the same key.

    The chat counts as the envelope names it, so that a migration keeps the key; the text does not count, else
    a conflict could never show.
    """
    place = envelope.route_id or envelope.chat or ""
    thread = str(envelope.message_thread_id or "")
    return _hash(PROVIDER, bot, place, thread, envelope.msg_id)


def payload_hash(envelope: TelegramOutbound) -> str:
    """What must not change under one key: text, parse mode and options of the request."""
    options = {name: getattr(envelope, name) for name in _OPTIONS if getattr(envelope, name) is not None}
    return _hash(envelope.text, envelope.parse_mode or "", json.dumps(options, sort_keys=True))


def chat_hash(bot: str, chat: str) -> str:
    """A chat without its id in the clear; the same for the same bot and chat."""
    return _hash(PROVIDER, bot, chat)


def fresh(
    bot: str,
    envelope: TelegramOutbound,
    chat: str,
    now: float,
    *,
    stream_seq: int | None = None,
    reply_to: int | None = None,
    delayed: bool = False,
    status: str = IN_FLIGHT,
) -> Record:
    """The record of a message that is met for the first time.

    Args:
        chat: The chat to send to, as it is now.
        now: Seconds since 1970.
    """
    at = timestamp(now)
    return Record(
        key=key_of(bot, envelope),
        bot=bot,
        msg_id=envelope.msg_id,
        payload_hash=payload_hash(envelope),
        chat_hash=chat_hash(bot, chat),
        message_thread_id=envelope.message_thread_id,
        route_id=envelope.route_id,
        from_member=envelope.from_member,
        group=envelope.group,
        part=envelope.part,
        parts=envelope.parts,
        visibility_decision_id=envelope.visibility_decision_id,
        status=status,
        reply_to=reply_to,
        attempts=int(status == IN_FLIGHT),
        delayed=delayed,
        stream_seq=stream_seq,
        created_at=at,
        updated_at=at,
    )


class Begun(NamedTuple):
    """What a delivery may do.

    Attributes:
        write: The record to write first; None where it stays as it is.
        says: What the delivery comes to without a send; None where the send may begin once `write` is stored.
    """

    write: Record | None
    says: Concluded | Terminal | Ambiguous | None = None


def begin(found: Record | None, first: Record, parks: bool) -> Begun:
    """What a delivery may do whose record was found as it is.

    Args:
        found: What is stored under its key.
        first: What would be stored of it if nothing were; see `fresh`.
        parks: Whether what is in doubt is left to an operator.
    """
    if found is None:
        return Begun(first)
    if found.payload_hash != first.payload_hash:
        words = "the same msg_id was used for this place with another text or other options"
        return Begun(None, Terminal(0, words, "conflict"))
    at = first.updated_at
    match found.status:
        case "sent":
            return Begun(None, Concluded(SENT))
        case "cancelled" if found.resolved_at is not None:
            return Begun(None, Concluded(CANCELLED))
        case "failed_terminal":
            code, words = found.last_error_code or 0, found.last_error or "failed before"
            return Begun(None, Terminal(code, words, found.reason or "refused"))
        case "send_in_flight":
            found = found.to(AMBIGUOUS, at, ambiguous_since=at, last_error_code=0, last_error=INTERRUPTED)
            if parks:
                return Begun(found, Ambiguous(INTERRUPTED, parked=True))
        case "send_ambiguous" if parks:
            return Begun(None, Ambiguous(found.last_error or INTERRUPTED, parked=True))
    if found.status != PENDING:
        found = found.to(PENDING, at)
    again = found.to(IN_FLIGHT, at, attempts=found.attempts + 1, next_attempt_at=None)
    return Begun(
        msgspec.structs.replace(
            again,
            stream_seq=first.stream_seq,
            chat_hash=first.chat_hash,
            reply_to=first.reply_to,
            delayed=found.delayed or first.delayed,
            reason=None,
        )
    )


def merged(found: Record | None, ours: Record) -> Record | None:
    """What to write when `ours` could not be written over the record that it follows; None for nothing.

    Somebody else may have written meanwhile: who took us for dead, or an operator. What they say stands,
    except that a message that they are in doubt of, or would send again, was sent.
    """
    if found is None or (found.status == IN_FLIGHT and found.attempts == ours.attempts):
        return ours
    if found.nonce == ours.nonce or ours.status != SENT:
        return None
    if found.status == SENT and ours.link_missing and found.message_id == ours.message_id:
        return msgspec.structs.replace(found, link_missing=True, updated_at=ours.updated_at, nonce=ours.nonce)
    if found.status in (PENDING, RATE_LIMITED, RETRYABLE):
        found = found.to(IN_FLIGHT, ours.updated_at)  # the send that was begun before has come to its end
    if SENT not in TRANSITIONS[found.status]:
        return None
    return found.to(
        ours.status,
        ours.updated_at,
        reason=ours.reason,
        message_id=ours.message_id,
        sent_at=ours.sent_at,
        link_missing=ours.link_missing,
        next_attempt_at=None,
        ambiguous_since=None,
        last_error_code=ours.last_error_code,
        last_error=ours.last_error,
        nonce=ours.nonce,
    )


def outcome(record: Record, disposition: Tried, now: float) -> Record:
    """The record of a send in flight after its answer.

    Args:
        record: As it was written before the send, or by whoever took it for dead meanwhile.
        now: Seconds since 1970.

    Raises:
        LedgerError: It is not in flight, and no late answer is of use for it.
    """
    at = timestamp(now)
    match disposition:
        case Sent():
            return record.to(
                SENT,
                at,
                message_id=disposition.message_id,
                sent_at=at,
                ambiguous_since=None,
                last_error_code=None,
                last_error=None,
            )
        case Ambiguous():
            since = record.ambiguous_since or at
            return _failed(record, AMBIGUOUS, at, disposition.status_code, disposition.description, since)
        case Terminal():
            failed = _failed(record, TERMINAL, at, disposition.error_code, disposition.description)
            return msgspec.structs.replace(failed, reason=disposition.reason)
        case Transient() if disposition.rate_limited:
            failed = _failed(record, RATE_LIMITED, at, disposition.status_code, disposition.description)
            asked = disposition.retry_after_seconds
            return msgspec.structs.replace(
                failed, next_attempt_at=None if asked is None else timestamp(now + asked)
            )
        case Transient():
            return _failed(record, PENDING, at, disposition.status_code, disposition.description)
        case Unavailable() | BotFault():
            return _failed(record, RETRYABLE, at, disposition.status_code, disposition.description)
        case Migrated():
            return _failed(record, PENDING, at, 400, disposition.description)


def _failed(
    record: Record, status: str, at: str, code: int | None, words: str, since: str | None = None
) -> Record:
    return record.to(
        status, at, last_error_code=code, last_error=words, ambiguous_since=since, next_attempt_at=None
    )


def _hash(*parts: str) -> str:
    # Each part's length goes first, so that no two lists of parts run together into the same bytes.
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()
