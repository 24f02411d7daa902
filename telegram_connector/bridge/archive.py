"""The ledger's records and links as an operator treats them: read, settled by hand, forgotten. Blocking."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from telegram_connector import links, record
from telegram_connector.bridge.client import AT_ONCE, NatsClient
from telegram_connector.bridge.deadletters import UNMARKED, DeadLetters
from telegram_connector.bridge.kv import KeyValue
from telegram_connector.bridge.stored import data, each, headers
from telegram_connector.deadletter import REASON, STREAM_SEQ, Letter
from telegram_connector.errors import STREAM_NOT_FOUND, ApiError, LedgerError, Unanswered
from telegram_connector.links import Link, message_key, msg_id_key
from telegram_connector.record import Record
from telegram_connector.resolution import is_original, link_of, read_time
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET

DEAD_REASON = "ambiguous"
KEY_DIGITS = 64

T = TypeVar("T", Record, Link)


@dataclass(frozen=True)
class Kept(Generic[T]):
    """What is stored under one key.

    Attributes:
        key: The key.
        revision: By which it can be replaced.
        value: None where it cannot be read.
    """

    key: str
    revision: int
    value: T | None


class Original(NamedTuple):
    """A message as it was stored."""

    payload: bytes
    headers: dict[str, str]


class NotOne(LedgerError):
    """Raised when the beginning of a key names no record, or several."""


class Archive:
    """The ledger of a NATS account, whatever bots are in it. For one thread."""

    def __init__(self, client: NatsClient, settings: NatsSettings) -> None:
        self._client = client
        self._settings = settings
        self._records = KeyValue(client, LEDGER_BUCKET)
        self._links = KeyValue(client, LINKS_BUCKET)

    # Reading

    def records(self) -> Iterator[Kept[Record]]:
        """All records in the order of their keys, those that cannot be read among them.

        Raises:
            BridgeError: The bucket cannot be read.
        """
        return _each(self._records, self._records.keys(), _record)

    def links(self, pattern: str = ">") -> Iterator[Kept[Link]]:
        """All links that match; each message has two, by Telegram's id and by the publisher's.

        Raises:
            BridgeError: The bucket cannot be read.
        """
        return _each(self._links, self._links.keys(pattern), _link)

    def one(self, beginning: str) -> Kept[Record]:
        """The record whose key begins like that.

        Raises:
            NotOne: There is none, or more than one.
            BridgeError: The bucket cannot be read.
        """
        keys = [beginning] if len(beginning) == KEY_DIGITS else self._records.keys()
        found = list(_each(self._records, [key for key in keys if key.startswith(beginning)], _record))
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotOne(f"no record has a key that begins with {beginning}")
        shown = ", ".join(kept.key[: len(beginning) + 8] for kept in found[:5])
        raise NotOne(f"{len(found)} keys begin with {beginning}: {shown}{', ...' if found[5:] else ''}")

    def original(self, wanted: Record) -> Original | None:
        """The message of a record, from the outbound stream or from its dead letter; None where it is gone.

        Raises:
            BridgeError: A stream cannot be read.
        """
        for message in self._stored(self._settings.stream, [wanted.stream_seq] if wanted.stream_seq else []):
            if is_original(wanted, data(message)):
                return Original(data(message), headers(message))
        buried = self._buried(wanted)
        return Original(data(buried), headers(buried)) if buried is not None else None

    def put_aside(self, wanted: Record, by: str, now: Callable[[], str], why: str) -> None:
        """Mark the dead letter of a record as done with; nothing happens where there is none.

        Raises:
            BridgeError: It was not marked, or nobody said that it was.
        """
        message = self._buried(wanted)
        if message is not None:
            letter = Letter(int(message["seq"]), str(message["time"]), headers(message), data(message))
            DeadLetters(self._client, self._settings, by, now).discard(letter, UNMARKED, why)

    def _buried(self, wanted: Record) -> dict[str, Any] | None:
        try:
            state = self._client.api(f"STREAM.INFO.{self._settings.dead_stream}")["state"]
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            return None
        # The youngest first: what is in doubt has mostly died lately.
        newest_first = range(int(state["last_seq"]), max(0, int(state["first_seq"]) - 1), -1)
        for message in self._stored(self._settings.dead_stream, newest_first):
            about = headers(message)
            named = (about.get(REASON), about.get(STREAM_SEQ))
            if named == (DEAD_REASON, str(wanted.stream_seq)) and is_original(wanted, data(message)):
                return message
        return None

    def _stored(self, stream: str, sequences: Sequence[int]) -> Iterator[dict[str, Any]]:
        """What a stream has under these sequences, where there is such a stream; gaps are passed over."""
        try:
            yield from each(self._client, stream, sequences)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise

    # Changing

    def change(self, found: Kept[Record], value: Record) -> Kept[Record] | None:
        """Write a record over the one that was found; None when somebody else was first.

        Raises:
            BridgeError: It was not written, or nobody said that it was.
        """
        value = msgspec.structs.replace(value, nonce=secrets.token_hex(8))
        try:
            revision = self._records.update(found.key, record.encode(value), found.revision)
        except Unanswered:
            now = self._records.get(found.key)
            if now is None or record.decode(now.value).nonce != value.nonce:
                raise
            revision = now.revision
        return None if revision is None else Kept(found.key, revision, value)

    def publish_again(self, payload: bytes, headers: dict[str, str]) -> int:
        """Publish to the outbound stream; returns the sequence.

        Raises:
            BridgeError: It was not stored, or nobody said that it was.
        """
        return self._client.publish(self._settings.subject, payload, headers).seq

    def taken_by(self, wanted: Record, message_id: int, hashed_chat: str) -> Link | None:
        """The link of Telegram's id in a chat, where it is that of another message.

        Raises:
            BridgeError: It cannot be read.
        """
        for kept in _each(self._links, [message_key(hashed_chat, message_id)], _link):
            if kept.value is not None and kept.value.msg_id != wanted.msg_id:
                return kept.value
        return None

    def store_link(self, found: Kept[Record], hashed_chat: str, timeout_seconds: float = 5.0) -> bool:
        """Store the link of a sent record, then note that it is there; False when the note came too late.

        Args:
            hashed_chat: Of the chat's decimal id.

        Raises:
            BridgeError: It was not stored, or nobody said that it was.
        """
        assert found.value is not None
        link = link_of(found.value)
        assert link is not None
        for key in (
            message_key(hashed_chat, link.message_id),
            msg_id_key(found.value.chat_hash, link.msg_id),
        ):
            links.wait(self._client.write(LINKS_BUCKET, key, links.encode(link), None), timeout_seconds)
        return self.change(found, msgspec.structs.replace(found.value, link_missing=False)) is not None

    def links_of(self, wanted: Record) -> list[Kept[Link]]:
        """The links of one record's message."""
        found = self._of(wanted, msg_id_key(wanted.chat_hash, wanted.msg_id))
        if wanted.message_id is None:
            return found
        exactly = self._of(wanted, message_key(wanted.chat_hash, wanted.message_id))
        # A chat that was sent to by @name has its link under its decimal id, which the record does not know.
        return found + (exactly or self._of(wanted, f"m.*.{wanted.message_id}"))

    def _of(self, wanted: Record, pattern: str) -> list[Kept[Link]]:
        whose = (wanted.bot, wanted.msg_id)
        return [k for k in self.links(pattern) if k.value and (k.value.bot, k.value.msg_id) == whose]

    def forget(self, bucket: str, key: str, revision: int) -> bool:
        """Delete a record or a link; False when somebody else has written it since.

        Raises:
            BridgeError: It was not deleted, or nobody said that it was.
        """
        return KeyValue(self._client, bucket).delete(key, revision) is not None

    def announce(self, event: bytes) -> None:
        """Tell whoever listens; whether the right is there shows nowhere."""
        self._client.announce(self._settings.alert_subject, event)


def _each(bucket: KeyValue, keys: Sequence[str], read: Callable[[str, bytes], T]) -> Iterator[Kept[T]]:
    in_order = sorted(keys)
    for first in range(0, len(in_order), AT_ONCE):
        some = in_order[first : first + AT_ONCE]
        for key, entry in zip(some, bucket.get_each(some), strict=True):
            if entry is None:
                continue
            value: T | None
            try:
                value = read(key, entry.value)
            except LedgerError:
                value = None
            yield Kept(key, entry.revision, value)


def _record(key: str, value: bytes) -> Record:
    found = record.decode(value)
    if found.key != key:
        raise LedgerError("a record of the ledger is stored under another's key")
    for at in (found.created_at, found.updated_at):
        read_time(at)
    return found


def _link(_key: str, value: bytes) -> Link:
    return links.decode(value)
