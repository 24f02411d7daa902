"""The ledger: each delivery's record is written before its send and after its answer.

`attempt` opens an entry before it sends and closes it afterwards; both block for seconds at most. What could
not be written is owed, and written later by a thread of the ledger's own. Without a ledger there is
`NullLedger`, which lets every send begin.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from telegram_connector.delivery import Delivery, Records
from telegram_connector.disposition import Ambiguous, Concluded, Deferred, Sent, Terminal, Tried
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import BridgeError, LedgerError, RevisionMismatch, Unanswered
from telegram_connector.events import LedgerBack, LedgerUnavailable, Observer
from telegram_connector.links import NOT_AVAILABLE, Link, Links, wait
from telegram_connector.record import (
    DROPPED_LATER,
    IN_FLIGHT,
    PENDING,
    SENT,
    TERMINAL,
    TRANSITIONS,
    Record,
    begin,
    decode,
    encode,
    fresh,
    merged,
    outcome,
)
from telegram_connector.topology import LEDGER_BUCKET

ASK_SECONDS = 2.0
AVOID_SECONDS = 5.0  # after no answer, where sends go on without the ledger
RACES = 4
AGAIN_FIRST_SECONDS = 0.5
AGAIN_CAP_SECONDS = 15.0
# Telegram's words for a reply whose target is gone; they only mark the link, nothing else depends on them.
REPLY_GONE = ("message to be replied not found", "replied message not found")


@dataclass(frozen=True)
class Entry:
    """A send that may begin.

    Attributes:
        record: As it was written; None where nothing is recorded.
        revision: Of that writing.
        parks: Whether a lost answer is left to an operator.
    """

    record: Record | None = None
    revision: int = 0
    parks: bool = False


@dataclass(frozen=True)
class Outgoing:
    """What is about to be sent.

    Attributes:
        delivery: Its delivery.
        envelope: What it says.
        chat: Where it goes now, decimal or ``@name``; a migration may have moved it.
    """

    delivery: Delivery
    envelope: TelegramOutbound
    chat: str


Opened: TypeAlias = Entry | Concluded | Terminal | Ambiguous | Deferred
"""A send that may begin, or what the delivery comes to without one."""


class Ledger(Protocol):
    """What an attempt asks before it sends, and tells afterwards."""

    def reply_target(self, outgoing: Outgoing) -> int | Terminal | Deferred | None:
        """Telegram's id of the message that this one replies to, or why it must not be sent."""

    def open(self, outgoing: Outgoing, reply_to: int | None) -> Opened:
        """Record that a send begins, or say why it must not."""

    def close(self, entry: Entry, outgoing: Outgoing, disposition: Tried) -> None:
        """Record what came of it. What cannot be written now is written later."""

    def drop(self, outgoing: Outgoing, terminal: Terminal) -> None:
        """Record, later, that the message will not be sent any more. Does not block."""

    def work(self) -> None:
        """Write what is owed until `stop`; runs in a thread of its own."""

    def stop(self, deadline: float) -> None:
        """Let `work` end once nothing is owed, at the deadline (monotonic seconds) at the latest."""


class NullLedger:
    """No ledger: a send may begin unless it asks for what only a ledger can answer."""

    def reply_target(self, outgoing: Outgoing) -> int | Terminal | Deferred | None:
        envelope = outgoing.envelope
        if envelope.reply_to is None or envelope.reply_to_message_id is not None:
            return envelope.reply_to_message_id
        return _without_reply(envelope, "reply_to names a msg_id, which takes TG_LEDGER=kv")

    def open(self, outgoing: Outgoing, reply_to: int | None) -> Opened:
        return Entry(parks=outgoing.envelope.on_ambiguous == "park")

    def close(self, entry: Entry, outgoing: Outgoing, disposition: Tried) -> None:
        pass

    def drop(self, outgoing: Outgoing, terminal: Terminal) -> None:
        pass

    def work(self) -> None:
        pass

    def stop(self, deadline: float) -> None:
        pass


class _Raced(Exception):
    """Somebody else has written the record since it was read."""


class KvLedger:
    """The ledger of one bot in key-value buckets. Thread-safe.

    Args:
        records: Where it is kept.
        bot: The bot's id.
        parks: Whether a lost answer is left to an operator, unless an envelope says so itself.
        clock: Monotonic seconds.
        wall: Seconds since 1970.
    """

    def __init__(
        self,
        records: Records,
        bot: str,
        *,
        parks: bool,
        observe: Observer,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._records = records
        self._links = Links(records, bot)
        self._bot = bot
        self._parks = parks
        self._observe = observe
        self._clock = clock
        self._wall = wall
        self._changed = threading.Condition()
        self._owed: deque[Callable[[], None]] = deque()
        self._known: dict[str, Record] = {}  # by key: what is owed, newer than what is stored
        self._unsent: dict[str, str] = {}  # by key: the nonce of a begin in doubt, whose send did not begin
        self._avoid_until = float("-inf")
        self._said = ""
        self._unrecorded = 0
        self._stop_at: float | None = None

    # Before a send

    def reply_target(self, outgoing: Outgoing) -> int | Terminal | Deferred | None:
        envelope = outgoing.envelope
        if envelope.reply_to is None or envelope.reply_to_message_id is not None:
            return envelope.reply_to_message_id
        try:
            link = self._links.sent_as(outgoing.chat, envelope.reply_to, self._patience())
        except (BridgeError, LedgerError) as error:
            self._cannot(str(error))
            return Deferred(f"what it replies to cannot be looked up: {error}")
        if link is None or link.stale_at is not None:
            return _without_reply(envelope, NOT_AVAILABLE)
        return link.message_id

    def open(self, outgoing: Outgoing, reply_to: int | None) -> Opened:
        wish = outgoing.envelope.on_ambiguous
        parks = self._parks if wish is None else wish == "park"
        if not parks and self._clock() < self._avoid_until:
            return self._not_recorded()
        first = fresh(
            self._bot,
            outgoing.envelope,
            outgoing.chat,
            self._wall(),
            stream_seq=outgoing.delivery.id.sequence,
            reply_to=reply_to,
        )
        try:
            opened = self._open(outgoing, first, parks)
        except (BridgeError, LedgerError) as error:
            self._cannot(str(error))
            if isinstance(error, Unanswered):
                self._avoid_until = self._clock() + AVOID_SECONDS
            return Deferred(f"the ledger cannot be used: {error}") if parks else self._not_recorded()
        self._can()
        return opened

    def _open(self, outgoing: Outgoing, first: Record, parks: bool) -> Opened:
        with self._changed:
            known = self._known.get(first.key)
        # A first hand-over is nearly always new: it is not looked up before it is written.
        guess = known is None and outgoing.delivery.hand_over == 1
        for _ in range(RACES):
            found, revision = (None, 0) if guess else self._read(first.key)
            guess = False
            begun = begin(known or self._as_known(found, outgoing.chat), first, parks)
            if begun.write is None:
                assert begun.says is not None
                return begun.says
            record = _stamped(begun.write)
            try:
                revision = self._write(record, revision)
            except _Raced:
                continue
            except BridgeError:
                with self._changed:
                    self._unsent[record.key] = record.nonce
                raise
            with self._changed:
                # What is stored is the newest now, whatever is owed of an attempt before.
                self._known.pop(record.key, None)
                self._unsent.pop(record.key, None)
            return begun.says or Entry(record, revision, parks)
        return Deferred("somebody else writes the same record of the ledger")

    def _as_known(self, found: Record | None, chat: str) -> Record | None:
        """`found`, unless more is known of a send in flight than its record says."""
        if found is None or found.status != IN_FLIGHT:
            return found
        with self._changed:
            unsent = self._unsent.get(found.key) == found.nonce
        if unsent:
            return found.to(PENDING, found.updated_at)
        link = self._links.sent_as(chat, found.msg_id, self._patience())
        if link is None or link.sent_at < found.updated_at:
            return found
        # The process ended when the link was stored already, and the record not yet.
        sent = found.to(SENT, link.sent_at, message_id=link.message_id, sent_at=link.sent_at)
        self._owe(lambda: self._make_good(_stamped(sent)), sent)
        return sent

    # After it

    def close(self, entry: Entry, outgoing: Outgoing, disposition: Tried) -> None:
        if entry.record is None:
            return
        record = _stamped(outcome(entry.record, disposition, self._wall()))
        link = self._link(record, outgoing.envelope) if isinstance(disposition, Sent) else None
        chat = outgoing.chat
        if isinstance(disposition, Sent) and disposition.chat_id is not None:
            chat = str(disposition.chat_id)
        # Both at once: the answer of neither is needed for the other.
        storing = self._links.store(link, chat, outgoing.chat) if link else ()
        try:
            self._write(record, entry.revision)
        except (_Raced, BridgeError) as error:
            if isinstance(error, BridgeError):
                self._cannot(str(error))
            self._owe(lambda: self._make_good(record), record)
        try:
            for future in storing:
                wait(future, self._patience())
        except BridgeError as error:
            self._cannot(str(error))
            missing = _stamped(msgspec.structs.replace(record, link_missing=True))
            self._owe(lambda: self._make_good(missing), missing)
            self._owe(lambda: self._repair_link(link, chat, outgoing.chat, missing))
        gone, at = record.reply_to, record.updated_at
        if gone is not None and _says_reply_is_gone(disposition):
            self._owe(lambda: self._links.mark_stale(outgoing.chat, gone, at, self._patience()))

    def drop(self, outgoing: Outgoing, terminal: Terminal) -> None:
        if terminal.reason not in DROPPED_LATER:
            return  # its record says so already, or is another's
        first = fresh(
            self._bot,
            outgoing.envelope,
            outgoing.chat,
            self._wall(),
            stream_seq=outgoing.delivery.id.sequence,
            status=PENDING,
        )
        self._owe(lambda: self._drop(first, terminal))

    def _drop(self, first: Record, terminal: Terminal) -> None:
        found, revision = self._read(first.key)
        record = found or first
        if TERMINAL not in TRANSITIONS[record.status] or record.payload_hash != first.payload_hash:
            return
        dropped = record.to(
            TERMINAL,
            first.updated_at,
            reason=terminal.reason,
            last_error_code=terminal.error_code,
            last_error=terminal.description,
        )
        try:
            self._write(_stamped(dropped), revision)
        except _Raced:
            self._drop(first, terminal)

    def _link(self, record: Record, envelope: TelegramOutbound) -> Link | None:
        if record.message_id is None or record.sent_at is None:
            return None
        return Link(
            bot=self._bot,
            message_id=record.message_id,
            msg_id=envelope.msg_id,
            route_id=envelope.route_id,
            from_member=envelope.from_member,
            sent_at=record.sent_at,
        )

    # What is owed

    def work(self) -> None:
        pause = AGAIN_FIRST_SECONDS
        while True:
            with self._changed:
                while not self._owed and self._stop_at is None:
                    self._changed.wait()
                if not self._owed or self._over():
                    return
                job = self._owed[0]
            try:
                job()
            except BridgeError as error:
                self._cannot(str(error))
                with self._changed:
                    self._changed.wait(pause if self._stop_at is None else AGAIN_FIRST_SECONDS / 5)
                pause = min(pause * 2, AGAIN_CAP_SECONDS)
                continue
            except LedgerError as error:
                self._cannot(str(error))  # what cannot be read stays as it is
            pause = AGAIN_FIRST_SECONDS
            with self._changed:
                self._owed.popleft()

    def stop(self, deadline: float) -> None:
        with self._changed:
            self._stop_at = deadline
            self._changed.notify_all()

    def _over(self) -> bool:
        return self._stop_at is not None and self._clock() >= self._stop_at

    def _owe(self, job: Callable[[], None], record: Record | None = None) -> None:
        """Have `job` done later; until then `record` is the truth of its key."""
        with self._changed:
            if record is not None:
                self._known[record.key] = record
            self._owed.append(job)
            self._changed.notify_all()

    def _make_good(self, record: Record) -> None:
        """Write a record that could not be written when it was due."""
        for _ in range(RACES):
            found, revision = self._read(record.key)
            wanted = merged(found, record)
            if wanted is not None:
                try:
                    self._write(_stamped(wanted), revision)
                except _Raced:
                    continue
            break
        with self._changed:
            if self._known.get(record.key) is record or self._known.get(record.key) == record:
                del self._known[record.key]

    def _repair_link(self, link: Link | None, chat: str, sent_to: str, missing: Record) -> None:
        assert link is not None
        for future in self._links.store(link, chat, sent_to):
            wait(future, self._patience())
        found, revision = self._read(missing.key)
        if found is not None and found.link_missing:
            try:
                self._write(_stamped(msgspec.structs.replace(found, link_missing=False)), revision)
            except _Raced:
                self._repair_link(link, chat, sent_to, missing)

    # Reading and writing

    def _read(self, key: str) -> tuple[Record | None, int]:
        found = wait(self._records.read(LEDGER_BUCKET, key), self._patience())
        if found is None:
            return None, 0
        # A record that an operator had forgotten is empty.
        return decode(found.value) if found.value else None, found.revision

    def _write(self, record: Record, revision: int) -> int:
        """Write over `revision`; what nobody confirmed is looked up.

        Raises:
            _Raced: Somebody else was first.
            BridgeError: It was not written, or nobody knows.
        """
        try:
            return wait(
                self._records.write(LEDGER_BUCKET, record.key, encode(record), revision), self._patience()
            )
        except (RevisionMismatch, Unanswered) as error:
            found, now = self._read(record.key)
            if found is not None and found.nonce == record.nonce:
                return now
            if isinstance(error, RevisionMismatch) or now != revision:
                raise _Raced from None
            raise

    def _patience(self) -> float:
        left = ASK_SECONDS if self._stop_at is None else self._stop_at - self._clock()
        return max(0.0, min(ASK_SECONDS, left))

    # What is said of it: on change, not per try

    def _not_recorded(self) -> Entry:
        with self._changed:
            self._unrecorded += 1
        return Entry()

    def _cannot(self, reason: str) -> None:
        with self._changed:
            news = reason != self._said
            self._said = reason
        if news:
            self._observe(LedgerUnavailable(reason, self._parks))

    def _can(self) -> None:
        if not self._said:
            return
        with self._changed:
            self._said, unrecorded, self._unrecorded = "", self._unrecorded, 0
        self._observe(LedgerBack(unrecorded))


def _says_reply_is_gone(tried: Tried) -> bool:
    return isinstance(tried, Terminal) and any(words in tried.description for words in REPLY_GONE)


def _stamped(record: Record) -> Record:
    return msgspec.structs.replace(record, nonce=secrets.token_hex(8))


def _without_reply(envelope: TelegramOutbound, why: str) -> Terminal | None:
    """A reply whose target is not known goes out as no reply, or not at all: as its envelope says."""
    return None if envelope.allow_sending_without_reply else Terminal(0, why)
