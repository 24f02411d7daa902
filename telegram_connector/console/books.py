"""What the page asks and does about the ledger: the same as the commands of ``ledger``."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Literal

import msgspec

from telegram_connector.bridge import DeadLetters, NatsClient
from telegram_connector.bridge.archive import Archive, Kept
from telegram_connector.bridge.kv import NoBucket
from telegram_connector.bridge.link import PermissionDenied
from telegram_connector.clock import timestamp
from telegram_connector.console import shown
from telegram_connector.envelope import decode, is_chat
from telegram_connector.errors import EnvelopeError, LedgerError
from telegram_connector.letters import DEFAULT_CHAT, Filter, Row, rows_of
from telegram_connector.links import Link, Links
from telegram_connector.record import SENT, TERMINAL, Record
from telegram_connector.resolution import Resolution, in_doubt, read_time
from telegram_connector.resolver import Overtaken, Resolver
from telegram_connector.settings import NatsSettings
from telegram_connector.story import story

LISTED = 200  # the newest; all are counted

View = Literal["doubt", "unsent", "all"]


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's word on a message in doubt.

    Attributes:
        how: The word.
        revision: Of the record that was looked at.
        message_id: With ``sent`` Telegram's id of it, where somebody saw it.
        chat: With that, the chat's decimal id, where it was sent to a ``@name``.
    """

    how: Resolution
    revision: int
    message_id: int | None = None
    chat: str = ""


class Books:
    """The ledger over one connection. For one thread.

    Args:
        by: Who asks, for the record.
    """

    def __init__(self, client: NatsClient, settings: NatsSettings, by: str) -> None:
        self._client = client
        self._settings = settings
        self._archive = Archive(client, settings)
        self._by = by

    def listed(self, view: View) -> dict[str, Any]:
        """The newest records of a view, and how many there are; ``off`` where there is no ledger.

        Raises:
            BridgeError: They cannot be read.
        """
        now, statuses, unreadable = _now(), Counter[str](), 0
        wanted: list[Kept[Record]] = []
        try:
            for kept in self._archive.records():
                if kept.value is None:
                    unreadable += 1
                    continue
                statuses[kept.value.status] += 1
                if self._is_in(view, kept.value, now):
                    wanted.append(kept)
        except NoBucket as error:
            return {"records": [], "count": 0, "statuses": {}, "unreadable": 0, "off": str(error)}
        newest = heapq.nlargest(LISTED, wanted, key=lambda kept: (_updated(kept), kept.key))
        return {
            "records": [self._shown(kept, now) for kept in newest],
            "count": len(wanted),
            "statuses": dict(statuses.most_common()),
            "unreadable": unreadable,
            "off": "",
        }

    def about(self, key: str) -> dict[str, Any]:
        """What else is known of a record's message: where it was to go, and whether it is still there.

        Raises:
            LedgerError: There is no such record.
            BridgeError: It cannot be read.
        """
        kept = self._one(key)
        assert kept.value is not None
        original = self._archive.original(kept.value)
        found: dict[str, Any] = dict.fromkeys(("chat", "kind", "expires_at"))
        found["there"] = original is not None
        if original is not None:
            try:
                envelope = decode(original.payload)
            except EnvelopeError:
                return found
            found |= {
                "chat": envelope.chat or DEFAULT_CHAT,
                "kind": envelope.kind,
                "expires_at": envelope.expires_at,
            }
        return found

    def body(self, key: str) -> dict[str, Any]:
        """What a record's message says.

        Raises:
            LedgerError: There is no such record.
            BridgeError: It cannot be read.
        """
        kept = self._one(key)
        assert kept.value is not None
        original = self._archive.original(kept.value)
        if original is None:
            return {"text": None, "parse_mode": None, "raw": "", "lost": True}
        try:
            envelope = decode(original.payload)
        except EnvelopeError:
            return {"text": None, "parse_mode": None, "raw": repr(original.payload)[2:-1], "lost": False}
        raw = original.payload.decode("utf-8", "backslashreplace")
        return {"text": envelope.text, "parse_mode": envelope.parse_mode, "raw": raw, "lost": False}

    def settle(self, key: str, word: Word) -> str:
        """Say an operator's word; what was done, in a sentence.

        Raises:
            Overtaken: The record is another than the one that was looked at; nothing was changed.
            HalfDone: The word is on record; say it again.
            LedgerError: It cannot be said.
            BridgeError: Nothing was changed, or nobody said that it was.
        """
        if word.message_id is not None and (word.how != "sent" or word.message_id < 1):
            raise ValueError("message_id: a positive number, and only with sent")
        if word.chat and (word.message_id is None or not is_chat(word.chat) or word.chat.startswith("@")):
            raise ValueError("chat: a decimal chat id, and only with message_id")
        kept = self._one(key)
        assert kept.value is not None
        if kept.revision != word.revision:
            raise Overtaken(f"somebody else was first; nothing was changed here. {self._story(kept.value)}")
        resolver = Resolver(self._archive, self._settings, self._by)
        case = resolver.case(kept, word.how, word.message_id, word.chat or None)
        try:
            return resolver.settle(case)
        except Overtaken as overtaken:
            now = self._one(key).value
            words = f"{overtaken}. {self._story(now)}" if now else str(overtaken)
            raise Overtaken(words) from None

    def history(self, msg_id: str) -> dict[str, Any]:
        """All that is known of a publisher's id: records, links and dead letters, in the order of time.

        Raises:
            BridgeError: It cannot be read.
        """
        now, past = _now(), []
        records: list[Kept[Record]] = []
        unknown = []
        try:
            records = [
                kept
                for kept in self._archive.records()
                if kept.value is not None and msg_id in (kept.value.msg_id, kept.value.group)
            ]
        except NoBucket:
            unknown.append("there is no ledger (TG_LEDGER=kv), so nobody keeps what was sent")
        except PermissionDenied as denied:
            unknown.append(f"records: NATS permission missing for {denied.subject}")
        records.sort(key=lambda kept: (_created(kept), kept.value.part or 0 if kept.value else 0, kept.key))
        links: dict[tuple[int, str], Link] = {}  # each is stored twice
        for kept in records:
            assert kept.value is not None
            about = (kept.value.part and f"part {kept.value.part}: ") or ""
            past += [
                (at, about + words, "record")
                for at, words in shown.past(kept.value, now, self._settings.ack_wait_seconds)
            ]
            of_it = (link.value for link in self._archive.links_of(kept.value))
            links |= {(link.message_id, link.msg_id): link for link in of_it if link is not None}
        letters = []
        try:
            letters = list(self._letters_of(msg_id))
        except PermissionDenied as denied:
            unknown.append(f"dead letters: NATS permission missing for {denied.subject}")
        for row in letters:
            past += _past_of(row)
        past.sort(key=lambda one: read_time(one[0]))
        return {
            "records": [self._shown(kept, now) for kept in records],
            "letters": [shown.letter(row) for row in letters],
            "links": [shown.link(link) for link in links.values()],
            "past": [{"at": at, "words": words, "of": of} for at, words, of in past],
            "unknown": unknown,
        }

    def link(self, bot: str, chat: str, message_id: int) -> dict[str, Any]:
        """Which message of ours a message in a chat is.

        Raises:
            LinkNotFound: No link is kept; its words are what a user may be told.
            ValueError: That is no chat.
            BridgeError: It cannot be read.
        """
        if not is_chat(chat) or chat.startswith("@"):
            raise ValueError("chat: no decimal chat id")
        return shown.link(Links(self._client, bot).resolve(chat, message_id))

    def _letters_of(self, msg_id: str) -> Iterator[Row]:
        """Its dead letters, and those of its copies, which are numbered after a dot."""
        letters = DeadLetters(self._client, self._settings, self._by, lambda: timestamp(_now().timestamp()))
        for row in rows_of(letters, Filter(), _now()):
            of = row.letter.msg_id or ""
            rest = of.removeprefix(msg_id)
            if of == msg_id or (of.startswith(msg_id) and rest.startswith((".r", "/"))):
                yield row

    def _is_in(self, view: View, found: Record, now: datetime) -> bool:
        if view == "doubt":
            return in_doubt(found, now, self._settings.ack_wait_seconds) or shown.half_done(found) is not None
        if view == "unsent":
            return shown.is_withheld(found) or found.status == TERMINAL or _is_cancelled(found)
        return True

    def _one(self, key: str) -> Kept[Record]:
        kept = self._archive.one(key)
        if kept.value is None:
            raise LedgerError(f"the record {kept.key} cannot be read by this version")
        return kept

    def _shown(self, kept: Kept[Record], now: datetime) -> dict[str, Any]:
        return shown.record(kept, now, self._settings.ack_wait_seconds)

    def _story(self, found: Record) -> str:
        return story(found, _now(), self._settings.ack_wait_seconds, commands=False)


def _is_cancelled(found: Record) -> bool:
    return found.resolution == "cancel" and found.status != SENT


def _past_of(row: Row) -> Iterator[tuple[str, str, str]]:
    letter, mark = row.letter, row.mark
    at = timestamp(letter.dead_at.timestamp())
    words = f"Became dead letter {letter.seq} ({letter.reason}): {letter.description}"
    yield at, words, "letter"
    if mark is not None:
        copy = f" as {mark.msg_id}" if mark.msg_id and mark.state != "discarded" else ""
        why = f": {mark.why}" if mark.why else ""
        yield mark.at, f"Dead letter {letter.seq} {mark.state}{copy} by {mark.by}{why}", "letter"


def _updated(kept: Kept[Record]) -> datetime:
    assert kept.value is not None
    return read_time(kept.value.updated_at)


def _created(kept: Kept[Record]) -> datetime:
    assert kept.value is not None
    return read_time(kept.value.created_at)


def _now() -> datetime:
    return datetime.now(timezone.utc)
