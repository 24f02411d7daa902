"""The publisher's side of the ledger: what is on record about a local message, and what is put there.

A message that leaves is `pending` before it is published, and has its sequence once the stream has it; one
that is withheld is `cancelled`. What is pending without a sequence was begun and not confirmed, as after a
crash: it may be published again, since the relay's ledger sends one message per key, however often it is
published.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from telegram_connector.clock import timestamp
from telegram_connector.delivery import Versioned
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import BridgeError, RevisionMismatch
from telegram_connector.projection import (
    Decision,
    Earlier,
    GroupState,
    LocalMessage,
    Route,
    group_state,
    msg_id,
    text_hash,
)
from telegram_connector.record import (
    CANCELLED,
    PENDING,
    Record,
    decode,
    encode,
    fresh,
    key_of,
    payload_hash,
)
from telegram_connector.topology import LEDGER_BUCKET

# What the projection is told of a message that an operator has cancelled: no order revives it.
BY_OPERATOR = "cancelled_by_operator"


class Shelf(Protocol):
    """Where records are kept: a key-value bucket, see `bridge.Outlet`."""

    def read(self, bucket: str, keys: Sequence[str], timeout_seconds: float) -> list[Versioned | None]: ...

    def write(self, bucket: str, key: str, value: bytes, revision: int, timeout_seconds: float) -> int: ...


class Raced(Exception):
    """Somebody else has written a record since it was read: look again."""


@dataclass(frozen=True)
class Page:
    """What is stored under one key: the record, None for none, and its revision."""

    record: Record | None
    revision: int


@dataclass(frozen=True)
class Begun:
    """A message whose publishing is on record.

    Attributes:
        page: As it is stored now.
        before: What was there instead, where it was begun with another text and never confirmed.
    """

    page: Page
    before: Record | None = None


@dataclass(frozen=True)
class Found:
    """What is on record about a local message on a route, as a whole and in parts.

    Attributes:
        pages: By msg_id.
        text_hash: Of its text as it is now.
    """

    pages: Mapping[str, Page]
    text_hash: str

    def earlier(self, envelopes: Sequence[TelegramOutbound]) -> Earlier | None:
        """What stands against publishing these; None for nothing, and where it only has to be finished."""
        records = [page.record for page in self.pages.values() if page.record is not None]
        begun = [record for record in records if _is_begun(record)]
        if begun and not self._goes_on(begun, envelopes):
            first = begun[0]
            status = BY_OPERATOR if first.status == CANCELLED else first.status
            return Earlier(status=status, text_hash=first.text_hash or self.text_hash)
        for record in () if begun else records:
            if record.status == CANCELLED:
                return Earlier(status=CANCELLED, text_hash=record.text_hash or self.text_hash)
        return None

    def _goes_on(self, begun: Sequence[Record], envelopes: Sequence[TelegramOutbound]) -> bool:
        """Whether these are the parts of the same text, some of them not published yet."""
        hashes = {envelope.msg_id: payload_hash(envelope) for envelope in envelopes}
        return len(begun) < len(hashes) and all(
            hashes.get(record.msg_id) == record.payload_hash for record in begun
        )

    def is_begun(self, envelope: TelegramOutbound) -> bool:
        """Whether the stream has it already, as the record says."""
        record = self.pages[envelope.msg_id].record
        return record is not None and _is_begun(record)


def _is_begun(record: Record) -> bool:
    """Whether the stream has it, or a connector or an operator has met it."""
    if record.status == CANCELLED:
        return record.resolved_at is not None
    return record.status != PENDING or record.stream_seq is not None or record.attempts > 0


class Docket:
    """The records of one bot's local messages. Every call blocks for `timeout_seconds` at most.

    Args:
        shelf: Where they are kept.
        bot: The bot's id.
        wall: Seconds since 1970.
    """

    def __init__(self, shelf: Shelf, bot: str, wall: Callable[[], float] = time.time) -> None:
        self._shelf = shelf
        self._bot = bot
        self._wall = wall

    def look(
        self,
        message: LocalMessage,
        route: Route,
        envelopes: Sequence[TelegramOutbound],
        timeout_seconds: float,
    ) -> Found:
        """What is on record, as a whole, in parts, and under each of the envelopes.

        Raises:
            BridgeError: It cannot be read.
            LedgerError: It cannot be understood.
        """
        whole = msg_id(route.id, message.id)
        ids = list(dict.fromkeys([whole, f"{whole}/1", *(envelope.msg_id for envelope in envelopes)]))
        pages = self._pages(route, ids, timeout_seconds)
        return Found(dict(zip(ids, pages, strict=True)), text_hash(message.text))

    def withhold(
        self, found: Found, message: LocalMessage, route: Route, decision: Decision, timeout_seconds: float
    ) -> None:
        """Put on record that the message stays, and why.

        Raises:
            Raced: Look again.
            BridgeError: It was not written, or nobody said that it was.
        """
        page = found.pages[decision.msg_id]
        stand_in = _stand_in(route, decision.msg_id, message.sender)
        record = page.record or fresh(self._bot, stand_in, route.chat, self._wall(), status=CANCELLED)
        self._write(
            msgspec.structs.replace(
                record,
                status=CANCELLED,
                reason=decision.reason.value,
                last_error=decision.figures or None,
                visibility_decision_id=decision.decision_id,
                text_hash=decision.text_hash,
                updated_at=timestamp(self._wall()),
            ),
            page.revision,
            timeout_seconds,
        )

    def begin(self, found: Found, envelope: TelegramOutbound, timeout_seconds: float) -> Begun:
        """Put on record that an envelope is about to be published.

        Raises:
            Raced: Look again.
            BridgeError: It was not written, or nobody said that it was.
        """
        page = found.pages[envelope.msg_id]
        first = fresh(self._bot, envelope, envelope.chat or "", self._wall(), status=PENDING)
        first = msgspec.structs.replace(first, text_hash=found.text_hash)
        before = page.record
        if before is not None:
            if before.status == PENDING and before.payload_hash == first.payload_hash:
                return Begun(page)
            first = msgspec.structs.replace(first, created_at=before.created_at)
        revision = self._write(first, page.revision, timeout_seconds)
        unconfirmed = before if before is not None and before.status == PENDING else None
        return Begun(Page(first, revision), unconfirmed)

    def forget_whole(self, found: Found, whole: str, timeout_seconds: float) -> None:
        """Drop the record of the whole, which was withheld and now leaves in parts with records of their own.

        Raises:
            Raced: Look again.
            BridgeError: It was not written, or nobody said that it was.
        """
        page = found.pages[whole]
        if page.record is None:
            return
        key = page.record.key
        try:
            self._shelf.write(LEDGER_BUCKET, key, b"", page.revision, timeout_seconds)
        except RevisionMismatch:
            raise Raced from None

    def confirm(self, begun: Begun, stream_seq: int, timeout_seconds: float) -> None:
        """Note that the stream has it. Where that fails, it can be published again, which does no harm."""
        assert begun.page.record is not None
        self._note(begun.page.record, begun.page.revision, stream_seq, timeout_seconds)

    def put_back(self, begun: Begun, stream_seq: int | None, timeout_seconds: float) -> None:
        """What was begun before stands after all: the stream has that text, and not the one as edited."""
        if begun.before is not None:
            self._note(begun.before, begun.page.revision, stream_seq, timeout_seconds)

    def _note(self, record: Record, revision: int, stream_seq: int | None, timeout_seconds: float) -> None:
        noted = msgspec.structs.replace(record, stream_seq=stream_seq, updated_at=timestamp(self._wall()))
        # A connector may have met it meanwhile, and its record says more.
        with contextlib.suppress(Raced, BridgeError):
            self._write(noted, revision, timeout_seconds)

    def group_status(self, message_id: str, route: Route, timeout_seconds: float) -> GroupState | None:
        """What became of a message and of each of its parts; None where nothing is on record.

        Raises:
            BridgeError: It cannot be read.
            LedgerError: It cannot be understood.
        """
        whole = msg_id(route.id, message_id)
        alone, first = self._pages(route, [whole, f"{whole}/1"], timeout_seconds)
        if first.record is None:
            return None if alone.record is None else group_state(1, {1: alone.record.status})
        parts = first.record.parts or 1
        ids = [f"{whole}/{part}" for part in range(1, parts + 1)]
        pages = self._pages(route, ids, timeout_seconds)
        statuses = {part: page.record.status for part, page in enumerate(pages, 1) if page.record}
        return group_state(parts, statuses)

    def _pages(self, route: Route, ids: Sequence[str], timeout_seconds: float) -> list[Page]:
        keys = [key_of(self._bot, _stand_in(route, id_)) for id_ in ids]
        found = self._shelf.read(LEDGER_BUCKET, keys, timeout_seconds)
        return [
            # A record that was forgotten is empty.
            Page(decode(entry.value) if entry.value else None, entry.revision) if entry else Page(None, 0)
            for entry in found
        ]

    def _write(self, record: Record, revision: int, timeout_seconds: float) -> int:
        try:
            return self._shelf.write(LEDGER_BUCKET, record.key, encode(record), revision, timeout_seconds)
        except RevisionMismatch:
            raise Raced from None


def _stand_in(route: Route, id_: str, member: str | None = None) -> TelegramOutbound:
    """What an envelope by this route is to the ledger, but for its text."""
    return TelegramOutbound(
        msg_id=id_,
        chat=route.chat,
        text="",
        message_thread_id=route.topic.message_thread_id if route.topic else None,
        route_id=route.id,
        from_member=member,
    )
