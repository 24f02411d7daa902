"""From a message in Telegram to the message it was: links, kept for 90 days at least.

A reply that a user writes names Telegram's id of what it answers. The link says which message of ours that
was, by whom, on which route. What is not found must not be guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

import msgspec

from telegram_connector.delivery import Records
from telegram_connector.errors import LedgerError, Unanswered
from telegram_connector.record import chat_hash
from telegram_connector.topology import LINKS_BUCKET

T = TypeVar("T")

NOT_AVAILABLE = "old reply target not available"
_DIGITS = 32  # of a hash in a key: 128 bits


class Link(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one message in Telegram was.

    Attributes:
        bot: The bot's id.
        message_id: Telegram's id of it within its chat.
        msg_id: The publisher's id of it.
        record: The key of its record in the ledger: two topics of a chat may have the same `msg_id`.
        route_id: The publisher's route, where there is one.
        from_member: Who said it, where the projection named somebody.
        sent_at: When Telegram had it, RFC 3339.
        stale_at: Since when Telegram says that it is gone; None while it does not.
    """

    bot: str
    message_id: int
    msg_id: str
    record: str | None = None
    route_id: str | None = None
    from_member: str | None = None
    sent_at: str
    stale_at: str | None = None


_decoder = msgspec.json.Decoder(Link)
encode = msgspec.json.Encoder().encode


class LinkNotFound(LedgerError):
    """Raised when no link is kept for a message: it is too old, was deleted, or is not ours."""

    def __init__(self) -> None:
        super().__init__(NOT_AVAILABLE)


class Links:
    """The links of one bot. Thread-safe; every call blocks for `timeout_seconds` at most.

    Args:
        records: Where they are kept.
        bot: The bot's id, which stands before the colon in its token: message ids of private chats are its
            own.
    """

    def __init__(self, records: Records, bot: str) -> None:
        self._records = records
        self._bot = bot

    def resolve(self, chat: str, message_id: int, timeout_seconds: float = 5.0) -> Link:
        """What a message in a chat was.

        Args:
            chat: Decimal chat id.
            message_id: Telegram's id of the message.

        Raises:
            LinkNotFound: No link is kept; its words are what a user may be told.
            BridgeError: It cannot be read now.
        """
        found = self._read(by_message(self._bot, chat, message_id), timeout_seconds)
        if found is None:
            raise LinkNotFound
        return found

    def sent_as(self, chat: str, msg_id: str, timeout_seconds: float) -> Link | None:
        """The link of a message of ours by the publisher's id; None when there is none.

        Args:
            chat: The chat as it was sent to, decimal or ``@name``.

        Raises:
            BridgeError: It cannot be read now.
        """
        return self._read(by_msg_id(self._bot, chat, msg_id), timeout_seconds)

    def store(self, link: Link, chat: str, sent_to: str) -> Sequence[Future[int]]:
        """Begin to store a link; it is stored when all the futures have a result.

        Args:
            chat: The chat's decimal id, as Telegram says.
            sent_to: The chat as it was sent to.
        """
        value = encode(link)
        keys = (by_message(self._bot, chat, link.message_id), by_msg_id(self._bot, sent_to, link.msg_id))
        return [self._records.write(LINKS_BUCKET, key, value, None) for key in keys]

    def mark_stale(self, chat: str, message_id: int, at: str, timeout_seconds: float) -> None:
        """Note that Telegram does not know the message any more; the link is kept.

        Raises:
            BridgeError: It was not written, or nobody said that it was.
        """
        key = by_message(self._bot, chat, message_id)
        link = self._read(key, timeout_seconds)
        if link is None or link.stale_at is not None:
            return
        stale = encode(msgspec.structs.replace(link, stale_at=at))
        other = by_msg_id(self._bot, chat, link.msg_id)
        same = self._read(other, timeout_seconds)
        # Replies by msg_id look there. The one that is read first above is written last.
        if same is not None and same.message_id == message_id:
            wait(self._records.write(LINKS_BUCKET, other, stale, None), timeout_seconds)
        wait(self._records.write(LINKS_BUCKET, key, stale, None), timeout_seconds)

    def _read(self, key: str, timeout_seconds: float) -> Link | None:
        found = wait(self._records.read(LINKS_BUCKET, key), timeout_seconds)
        return decode(found.value) if found is not None and found.value else None


def decode(value: bytes) -> Link:
    """Read a link.

    Raises:
        LedgerError: It cannot be read.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LedgerError(f"a link cannot be read: {type(error).__name__}") from None


def by_message(bot: str, chat: str, message_id: int) -> str:
    """The key of a link by Telegram's id; no chat id in the clear."""
    return message_key(chat_hash(bot, chat), message_id)


def message_key(hashed_chat: str, message_id: int | str) -> str:
    """The same for a chat of which only the hash is known, as in a record."""
    return f"m.{hashed_chat[:_DIGITS]}.{message_id}"


def by_msg_id(bot: str, chat: str, msg_id: str) -> str:
    """The key of a link by the publisher's id."""
    return msg_id_key(chat_hash(bot, chat), msg_id)


def msg_id_key(hashed_chat: str, msg_id: str) -> str:
    """The same for a chat of which only the hash is known, as in a record."""
    digest = hashlib.sha256(msg_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"i.{hashed_chat[:_DIGITS]}.{digest[:_DIGITS]}"


def wait(future: Future[T], timeout_seconds: float) -> T:
    """The result of something asked of the bridge.

    Raises:
        Unanswered: It did not come in time.
        BridgeError: What went wrong.
    """
    try:
        return future.result(max(0.0, timeout_seconds))
    except FutureTimeoutError:
        raise Unanswered("no answer in time") from None
    except CancelledError:  # the bridge has ended meanwhile
        raise Unanswered("the connection was closed") from None
