"""An operator's word on what is in doubt: what it is about, and what is done once it is said.

The record is changed first, by compare-and-set, so that of two operators one goes on; what follows from the
word comes after it, and is done again when the same word is said again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from telegram_connector.alerts import event_bytes
from telegram_connector.bridge.archive import Archive, Kept
from telegram_connector.clock import timestamp
from telegram_connector.errors import BridgeError, LedgerError
from telegram_connector.record import IN_FLIGHT, Record, chat_hash
from telegram_connector.resolution import (
    ABANDONED_ACK_WAITS,
    SEND_AGAIN,
    SENT,
    Again,
    Resolution,
    again,
    in_doubt,
    resolved,
    unfinished,
)
from telegram_connector.settings import NatsSettings
from telegram_connector.story import named, story


class Overtaken(LedgerError):
    """Raised when somebody else has settled it since it was looked at."""


class HalfDone(LedgerError):
    """Raised when the record has the word, and what follows from it may not have been done: say it again."""


@dataclass(frozen=True)
class Case:
    """A message in doubt, and a word that may be said about it.

    Attributes:
        found: Its record as it is stored.
        record: The same, read.
        how: The word.
        message_id: With ``sent`` Telegram's id of it, where somebody saw it.
        hashed_chat: Of the chat that it was sent to.
        copy: With ``send-again`` what is published.
    """

    found: Kept[Record]
    record: Record
    how: Resolution
    message_id: int | None
    hashed_chat: str
    copy: Again | None

    @property
    def unfinished(self) -> bool:
        """Whether this very word was said before, and what follows from it may not have been done."""
        return unfinished(self.record, self.how, self.message_id)


class Resolver:
    """Settles what is in doubt.

    Args:
        by: Who says so, for the record.
    """

    def __init__(self, archive: Archive, settings: NatsSettings, by: str) -> None:
        self._archive = archive
        self._settings = settings
        self._by = by

    def case(
        self, found: Kept[Record], how: Resolution, message_id: int | None = None, chat: str | None = None
    ) -> Case:
        """What the word would be about; nothing is changed.

        Args:
            chat: The chat's decimal id, where it was sent to a ``@name``.

        Raises:
            LedgerError: It cannot be said about this record.
            BridgeError: A stream cannot be read.
        """
        record = found.value
        if record is None:
            raise LedgerError(
                f"the record {found.key} cannot be read by this version; ledger forget deletes it"
            )
        now = datetime.now(timezone.utc)
        self._allow(record, how, message_id, now)
        copy = self._copy(record, now) if how == SEND_AGAIN else None
        hashed_chat = record.chat_hash if chat is None else chat_hash(record.bot, chat)
        if message_id is not None:
            other = self._archive.taken_by(record, message_id, hashed_chat)
            if other is not None:
                raise LedgerError(
                    f"message {message_id} in that chat is {other.msg_id}: another number? Nothing changed"
                )
        return Case(found, record, how, message_id, hashed_chat, copy)

    def settle(self, case: Case) -> str:
        """Say the word and do what follows from it; what was done, in words.

        Raises:
            Overtaken: Somebody else was first; nothing was changed.
            HalfDone: The word is on record; say it again.
            BridgeError: Nothing was changed, or nobody said that it was.
        """
        found, record = case.found, case.record
        if not case.unfinished:
            found, record = self._say(case)
        with suppress(BridgeError):  # without it, the letter is found among the others and put aside by hand
            why = f"ledger resolve: {record.resolution}"
            self._archive.put_aside(record, self._by, _now, why)
        if case.copy is not None:
            return self._publish(record, case.copy)
        if case.message_id is not None:
            return self._link(found, record, case.hashed_chat)
        return f"{named(record)}: {'taken as sent' if case.how == SENT else 'cancelled'}"

    def _allow(self, record: Record, how: Resolution, message_id: int | None, now: datetime) -> None:
        ack_wait = self._settings.ack_wait_seconds
        if in_doubt(record, now, ack_wait) or unfinished(record, how, message_id):
            return
        if record.status == IN_FLIGHT:
            raise LedgerError(
                f"its send began at {record.updated_at}, and a connector may be waiting for the answer: it is"
                f" in doubt {ABANDONED_ACK_WAITS * ack_wait:g} s after that"
            )
        raise LedgerError(f"nothing is in doubt. {story(record, now, ack_wait)}")

    def _copy(self, record: Record, now: datetime) -> Again:
        if {"*", ">"} & set(self._settings.subject.split(".")):
            raise LedgerError("TG_SUBJECT has a wildcard: set it to the one subject to publish to")
        original = self._archive.original(record)
        if original is None:
            raise LedgerError(
                f"its original is in the streams no more (it was sequence {record.stream_seq}), so it cannot "
                "be sent again from here: publish it anew under another msg_id, and cancel this one. Nothing "
                "was changed"
            )
        return again(original.payload, original.headers, now.timestamp())

    def _say(self, case: Case) -> tuple[Kept[Record], Record]:
        """Write the operator's word into the record, and tell whoever listens."""
        now, record = datetime.now(timezone.utc), case.record
        settled = resolved(record, case.how, self._by, timestamp(now.timestamp()), case.message_id)
        changed = self._archive.change(case.found, settled)
        if changed is None:
            raise Overtaken("somebody else was first; nothing was changed here. Look at it again")
        facts = {"key": record.key, "msg_id": record.msg_id, "resolution": case.how, "by": self._by}
        text = f"{self._by} resolved msg_id={record.msg_id[:200]}, which was in doubt: {case.how}"
        event = event_bytes(self._settings.durable, "ledger_resolved", text, facts, now.timestamp())
        with suppress(BridgeError):  # nobody need listen
            self._archive.announce(event)
        return changed, settled

    def _publish(self, record: Record, copy: Again) -> str:
        try:
            sequence = self._archive.publish_again(copy.payload, copy.headers)
        except BridgeError as error:
            raise HalfDone(
                f"the record says send-again now, but its copy may not be published: {error}; do the same "
                "again, which does no harm"
            ) from None
        without = f", without its expires_at {copy.expired}" if copy.expired else ""
        return f"{named(record)}: published again as sequence {sequence}{without}"

    def _link(self, found: Kept[Record], record: Record, hashed_chat: str) -> str:
        try:
            self._archive.store_link(found, hashed_chat)
        except BridgeError as error:
            raise HalfDone(
                f"it is taken as sent now, but its link is not stored: {error}; do the same again"
            ) from None
        return f"{named(record)}: taken as sent, message {record.message_id}"


def _now() -> str:
    return timestamp(datetime.now(timezone.utc).timestamp())
