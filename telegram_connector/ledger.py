"""The ledger: each delivery's record is written before its send and after its answer.

`attempt` opens an entry before it sends and closes it afterwards; both block for seconds at most. What could
not be written is owed, and written later by a thread of the ledger's own. Without a ledger there is
`NullLedger`, which lets every send begin.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from telegram_connector.clock import timestamp
from telegram_connector.delivery import Delivery, Records
from telegram_connector.disposition import Ambiguous, Concluded, Deferred, Sent, Terminal, Tried
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import (
    STREAM_NOT_FOUND,
    ApiError,
    BridgeError,
    LedgerError,
    RevisionMismatch,
    Unanswered,
)
from telegram_connector.events import LedgerBack, LedgerUnavailable, Observer
from telegram_connector.links import NOT_AVAILABLE, Link, Links, wait
from telegram_connector.record import (
    AMBIGUOUS,
    IN_FLIGHT,
    INTERRUPTED,
    PENDING,
    SENT,
    TERMINAL,
    TRANSITIONS,
    Record,
    begin,
    decode,
    encode,
    fresh,
    key_of,
    merged,
    outcome,
)
from telegram_connector.topology import LEDGER_BUCKET

ASK_SECONDS = 2.0
AVOID_SECONDS = 5.0  # after no answer, where sends go on without the ledger
RACES = 4
UNCONFIRMED = -1
LINKS_OWED = 10_000  # some 20 MB; what is more than that stays on record as missing
AGAIN_FIRST_SECONDS = 0.5
AGAIN_CAP_SECONDS = 15.0
# Why a message is dropped that Telegram was not asked about last. What is in doubt stays so; a conflict's
# record is another message's.
_DROPPED = ("gave_up", "expired", "refused")
# Telegram's words for a reply whose target is gone; they only mark the link, nothing else depends on them.
REPLY_GONE = ("message to be replied not found", "replied message not found")


@dataclass(frozen=True)
class Entry:
    """A send that may begin.

    Attributes:
        record: As it was written; None where nothing is recorded.
        revision: Of that writing; `UNCONFIRMED` where nobody knows whether it is stored.
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
        delayed: Whether pacing kept it waiting for long.
    """

    delivery: Delivery
    envelope: TelegramOutbound
    chat: str
    delayed: bool = False


Opened: TypeAlias = Entry | Concluded | Terminal | Ambiguous | Deferred
"""A send that may begin, or what the delivery comes to without one."""


class Ledger(Protocol):
    """What an attempt asks before it sends, and tells afterwards."""

    def reply_target(self, outgoing: Outgoing) -> int | Terminal | Deferred | None:
        """Telegram's id of the message that this one replies to, or why it must not be sent."""

    def open(self, outgoing: Outgoing, reply_to: int | None) -> Opened:
        """Record that a send begins, or say why it must not."""

    def settled(self, outgoing: Outgoing) -> Concluded | Terminal | Ambiguous | Deferred | None:
        """What the record of a message says that must not be sent now; None where it says nothing."""

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

    def settled(self, outgoing: Outgoing) -> Concluded | Terminal | Ambiguous | Deferred | None:
        return None

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
        self._links_owed: deque[Callable[[], None]] = deque()
        self._known: dict[str, Record] = {}  # by key: what is owed, newer than what is stored
        self._unsent: dict[str, set[str]] = {}  # by key: nonces of begins in doubt whose sends did not begin
        self._avoid_until = float("-inf")
        self._said = ""
        self._said_waits = False
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
            self._cannot(error, waits=True)
            return Deferred(f"what it replies to cannot be looked up: {_why(error)}")
        if link is None and self._links_owed:
            return Deferred("what it replies to may be among the links that are not stored yet")
        if link is None or link.stale_at is not None:
            return _without_reply(envelope, NOT_AVAILABLE)
        return link.message_id

    def open(self, outgoing: Outgoing, reply_to: int | None) -> Opened:
        parks = self._parks_for(outgoing.envelope)
        first = self._first(outgoing, IN_FLIGHT, reply_to)
        if not parks and self._clock() < self._avoid_until:
            return self._unread(first)
        try:
            opened = self._open(outgoing, first, parks)
        except (BridgeError, LedgerError) as error:
            self._fails(error, waits=parks)
            return Deferred(f"the ledger cannot be used: {_why(error)}") if parks else self._unread(first)
        assert opened is not None
        if not (isinstance(opened, Entry) and opened.revision == UNCONFIRMED):
            self._can()
        return opened

    def _unread(self, first: Record) -> Opened:
        """What may be done about a message that need not wait for its record."""
        with self._changed:
            known = self._known.get(first.key)
        return begin(known, first, False).says or self._not_recorded()

    def settled(self, outgoing: Outgoing) -> Concluded | Terminal | Ambiguous | Deferred | None:
        parks = self._parks_for(outgoing.envelope)
        try:
            opened = self._open(outgoing, self._first(outgoing, PENDING), parks, sends=False)
        except (BridgeError, LedgerError) as error:
            self._cannot(error, waits=parks)
            return Deferred(f"the ledger cannot be used: {_why(error)}") if parks else None
        assert not isinstance(opened, Entry)
        return opened

    def _parks_for(self, envelope: TelegramOutbound) -> bool:
        return self._parks if envelope.on_ambiguous is None else envelope.on_ambiguous == "park"

    def _first(self, outgoing: Outgoing, status: str, reply_to: int | None = None) -> Record:
        return fresh(
            self._bot,
            outgoing.envelope,
            outgoing.chat,
            self._wall(),
            stream_seq=outgoing.delivery.id.sequence,
            reply_to=reply_to,
            delayed=outgoing.delayed,
            status=status,
        )

    def _open(self, outgoing: Outgoing, first: Record, parks: bool, sends: bool = True) -> Opened | None:
        # A first hand-over is nearly always new: it is not looked up before it is written.
        guess = sends and first.key not in self._known and outgoing.delivery.hand_over == 1
        for _ in range(RACES):
            found, revision = (None, 0) if guess else self._read(first.key)
            guess = False
            begun = begin(self._as_known(found, first.key, outgoing.chat), first, parks)
            if begun.write is None or (begun.says is None and not sends):
                return begun.says
            record = _stamped(begun.write)
            try:
                revision = self._write(record, revision)
            except _Raced:
                continue
            except BridgeError as error:
                if parks:  # else it is sent all the same
                    with self._changed:
                        self._unsent.setdefault(record.key, set()).add(record.nonce)
                elif isinstance(error, Unanswered) and begun.says is None:
                    # Perhaps it is stored, and must not stay so: what comes of the send is written later.
                    self._fails(error)
                    return Entry(record, UNCONFIRMED)
                raise
            with self._changed:
                # What was owed of this key is part of what is written now.
                self._known.pop(record.key, None)
                self._unsent.pop(record.key, None)
            return begun.says or Entry(record, revision, parks)
        return Deferred("somebody else writes the same record of the ledger")

    def _as_known(self, found: Record | None, key: str, chat: str) -> Record | None:
        """`found`, unless more is known than the stored record says."""
        with self._changed:
            known = self._known.get(key)
            unsent = self._unsent.get(key, ())
        if known is not None:
            found = merged(found, known) or found
        if found is None or found.status != IN_FLIGHT:
            return found
        if found.nonce in unsent:
            return found.to(PENDING, found.updated_at)
        link = self._links.sent_as(chat, found.msg_id, self._patience())
        if link is None or link.record != found.key or link.sent_at < found.updated_at:
            return found
        # The process ended when the link was stored already, and the record not yet.
        sent = _stamped(found.to(SENT, link.sent_at, message_id=link.message_id, sent_at=link.sent_at))
        self._owe(lambda: self._make_good(sent), sent)
        return sent

    # After it

    def close(self, entry: Entry, outgoing: Outgoing, disposition: Tried) -> None:
        link = self._link(outgoing, disposition) if isinstance(disposition, Sent) else None
        chat = outgoing.chat
        if isinstance(disposition, Sent) and disposition.chat_id is not None:
            chat = str(disposition.chat_id)
        if entry.record is None:
            if link is not None:  # replies are to find it all the same
                self._owe_link(lambda: self._store_link(link, chat, outgoing.chat))
            return
        record = _stamped(outcome(entry.record, disposition, self._wall()))
        # Both at once: the answer of neither is needed for the other.
        storing = self._links.store(link, chat, outgoing.chat) if link else ()
        if not self._stored(record, entry.revision):
            self._owe(lambda: self._make_good(record), record)
        try:
            for future in storing:
                wait(future, self._patience())
        except BridgeError as error:
            self._cannot(error)
            missing = _stamped(msgspec.structs.replace(record, link_missing=True))
            self._owe(lambda: self._make_good(missing), missing)
            self._owe_link(lambda: self._store_link(link, chat, outgoing.chat, missing.key))
        gone, at = record.reply_to, record.updated_at
        if gone is not None and _says_reply_is_gone(disposition):
            self._owe_link(lambda: self._links.mark_stale(outgoing.chat, gone, at, self._patience()))

    def _stored(self, record: Record, revision: int) -> bool:
        """Write what came of a send. Nothing may leave here: what was sent must not look like a failure."""
        if revision == UNCONFIRMED:
            return False
        try:
            self._write(record, revision)
        except _Raced:
            return False
        except (BridgeError, LedgerError) as error:
            self._cannot(error)
            return False
        return True

    def drop(self, outgoing: Outgoing, terminal: Terminal) -> None:
        if terminal.reason in _DROPPED:
            first = self._first(outgoing, PENDING)
            self._owe(lambda: self._drop(outgoing, first, terminal))

    def _drop(self, outgoing: Outgoing, first: Record, terminal: Terminal) -> None:
        found, revision = self._read(first.key)
        record = self._as_known(found, first.key, outgoing.chat) or first
        if record.payload_hash != first.payload_hash:
            return
        dropped = self._dropped(record, first.updated_at, terminal, self._parks_for(outgoing.envelope))
        if dropped is None:
            return
        try:
            self._write(_stamped(dropped), revision)
        except _Raced:
            self._drop(outgoing, first, terminal)

    @staticmethod
    def _dropped(record: Record, at: str, terminal: Terminal, parks: bool) -> Record | None:
        """The record of a message that will not be sent any more; None where it stays as it is."""
        if record.status == IN_FLIGHT:
            return record.to(AMBIGUOUS, at, ambiguous_since=at, last_error_code=0, last_error=INTERRUPTED)
        if record.status == AMBIGUOUS and (parks or terminal.reason != "gave_up"):
            return None  # perhaps it was sent; whoever lists what is in doubt must see it
        if TERMINAL not in TRANSITIONS[record.status]:
            return None
        return record.to(
            TERMINAL,
            at,
            reason=terminal.reason,
            last_error_code=terminal.error_code,
            last_error=terminal.description,
        )

    def _link(self, outgoing: Outgoing, sent: Sent) -> Link | None:
        if sent.message_id is None:
            return None
        envelope = outgoing.envelope
        return Link(
            bot=self._bot,
            message_id=sent.message_id,
            msg_id=envelope.msg_id,
            record=key_of(self._bot, envelope),
            route_id=envelope.route_id,
            from_member=envelope.from_member,
            sent_at=timestamp(self._wall()),
        )

    # What is owed

    def work(self) -> None:
        pause = AGAIN_FIRST_SECONDS
        while True:
            with self._changed:
                while not self.owes and self._stop_at is None:
                    self._changed.wait()
                if not self.owes or self._over():
                    return
            if self.pay():
                pause = AGAIN_FIRST_SECONDS
                continue
            with self._changed:
                self._changed.wait(pause if self._stop_at is None else AGAIN_FIRST_SECONDS / 5)
            pause = min(pause * 2, AGAIN_CAP_SECONDS)

    @property
    def owes(self) -> bool:
        """Whether anything is still to be written."""
        return bool(self._owed or self._links_owed)

    def pay(self) -> bool:
        """Write the first of what is owed, if anything is; False when it stays owed. For `work` alone."""
        with self._changed:
            # A link that cannot be stored must not keep a record waiting.
            queue = self._owed or self._links_owed
            if not queue:
                return True
            job = queue[0]
        try:
            job()
        except BridgeError as error:
            self._cannot(error)
            return False
        except LedgerError as error:
            self._cannot(error)  # what cannot be read stays as it is
        with self._changed:
            queue.popleft()
        return True

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

    def _owe_link(self, job: Callable[[], None]) -> None:
        with self._changed:
            if len(self._links_owed) < LINKS_OWED:
                self._links_owed.append(job)
                self._changed.notify_all()

    def _make_good(self, record: Record) -> None:
        """Write a record that could not be written when it was due, unless a later one was written since."""
        while self._known.get(record.key) is record:
            found, revision = self._read(record.key)
            wanted = merged(found, record)
            try:
                if wanted is not None:
                    self._write(wanted, revision)
            except _Raced:
                continue
            with self._changed:
                if self._known.get(record.key) is record:
                    del self._known[record.key]

    def _store_link(self, link: Link | None, chat: str, sent_to: str, missing: str | None = None) -> None:
        """Store a link that could not be stored when it was due; `missing` names a record that says so."""
        assert link is not None
        for future in self._links.store(link, chat, sent_to):
            wait(future, self._patience())
        found, revision = (None, 0) if missing is None else self._read(missing)
        if found is not None and found.link_missing:
            try:
                self._write(_stamped(msgspec.structs.replace(found, link_missing=False)), revision)
            except _Raced:
                self._store_link(link, chat, sent_to, missing)

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
            try:
                found, now = self._read(record.key)
            except BridgeError as second:
                # Whatever the second says, the first may be stored.
                raise (error if isinstance(error, Unanswered) else second) from None
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

    def _cannot(self, error: Exception, waits: bool = False) -> None:
        reason = _why(error)
        with self._changed:
            same = reason == self._said
            news = not same or (waits and not self._said_waits)
            self._said, self._said_waits = reason, waits or (same and self._said_waits)
        if news:
            self._observe(LedgerUnavailable(reason, waits))

    def _fails(self, error: Exception, waits: bool = False) -> None:
        self._cannot(error, waits)
        if isinstance(error, Unanswered):
            self._avoid_until = self._clock() + AVOID_SECONDS

    def _can(self) -> None:
        if not self._said or self.owes:
            return
        with self._changed:
            self._said, unrecorded, self._unrecorded = "", self._unrecorded, 0
        self._observe(LedgerBack(unrecorded))


def _why(error: Exception) -> str:
    """What is wrong, in the same words for every key: what goes on failing is said once."""
    if isinstance(error, ApiError) and (error.err_code == STREAM_NOT_FOUND or error.code == 503):
        return "nobody answers for a bucket; where it does not exist: telegram-connector provision"
    return re.sub(r"(\$KV\.\w+)\.[^\s\"]+", r"\1", str(error))


def _says_reply_is_gone(tried: Tried) -> bool:
    return isinstance(tried, Terminal) and any(words in tried.description for words in REPLY_GONE)


def _stamped(record: Record) -> Record:
    return msgspec.structs.replace(record, nonce=secrets.token_hex(8))


def _without_reply(envelope: TelegramOutbound, why: str) -> Terminal | None:
    """A reply whose target is not known goes out as no reply, or not at all: as its envelope says."""
    return None if envelope.allow_sending_without_reply else Terminal(0, why)
