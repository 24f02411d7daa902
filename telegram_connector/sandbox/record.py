"""What the sandbox received: the messages that were accepted, and every call with its answer."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

T = TypeVar("T")

TextFilter = str | re.Pattern[str]


@dataclass(frozen=True)
class Call:
    """One call of the Bot API.

    Attributes:
        seq: Its number, from 1 in the order in which the answers were decided.
        at: When, in Unix seconds by the sandbox's clock.
        bot_id: The number in the token, 0 where it has none. The token itself is not kept.
        verb: HTTP method.
        method: Bot API method, spelt as in the documentation where it is known, else as it came.
        params: Parameters as the Bot API reads them, all strings.
        headers: Of the request.
        body: Raw bytes of the request's body; empty where it was not read.
        accepted: Whether a message was created by it. True also where the caller never got to see the answer.
        message_id: Of that message, else None.
        status: HTTP status of the answer; None where none was sent.
        answer: Bytes of the whole answer's body, even where only a part went out.
        fault: Name of the fault rule that met it; "" for none.
        cut: Whether only a part of the answer went out.
    """

    seq: int
    at: float
    bot_id: int
    verb: str
    method: str
    params: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    accepted: bool
    message_id: int | None
    status: int | None
    answer: bytes
    fault: str = ""
    cut: bool = False

    @property
    def chat_id(self) -> str:
        """The ``chat_id`` parameter as it came; "" where there was none."""
        return self.params.get("chat_id", "")

    @property
    def description(self) -> str:
        """The words of a refusal in JSON; "" for anything else."""
        found = re.search(rb'"description":"((?:[^"\\]|\\.)*)"', self.answer)
        if not found or self.answer.startswith(b'{"ok":true'):
            return ""
        return re.sub(r"\\(.)", r"\1", found[1].decode())


@dataclass(frozen=True)
class Message:
    """A message that was accepted.

    Attributes:
        seq: Its number over all chats, from 1 in the order of acceptance.
        chat_id: Chat it is in, as a number.
        message_id: Telegram's id of it within the chat.
        raw_text: The text exactly as it was received.
        text: The text as Telegram would keep it: cleaned and trimmed, and without markup once that is parsed.
        parse_mode: As received; "" for none.
        entities: In the Bot API's form.
        date: Unix seconds.
        bot_id: Sender.
        message_thread_id: Topic, None for none.
        reply_to_message_id: Message it answers, None for none.
        params: All parameters as received.
        edits: Earlier raw texts, oldest first.
        deleted: Whether a bot deleted it since.
    """

    seq: int
    chat_id: int
    message_id: int
    raw_text: str
    text: str
    parse_mode: str
    entities: tuple[Mapping[str, Any], ...]
    date: int
    bot_id: int
    message_thread_id: int | None
    reply_to_message_id: int | None
    params: Mapping[str, str]
    edits: tuple[str, ...] = ()
    deleted: bool = False


@dataclass(frozen=True)
class OrderBreak:
    """A message that came after one with a higher number, in the same chat.

    Attributes:
        chat_id: The chat.
        earlier: Raw text that was received first and has the higher number.
        later: Raw text that was received after it and has the lower number.
    """

    chat_id: int
    earlier: str
    later: str


class Record:
    """Keeps the newest messages and calls, `keep` of each, and wakes who waits for more; thread-safe."""

    def __init__(self, keep: int = 50_000) -> None:
        self._changed = threading.Condition()
        self._messages: dict[tuple[int, int], Message] = {}
        self._calls: deque[Call] = deque(maxlen=keep)
        self._keep = keep
        self._message_seq = 0
        self._call_seq = 0
        self._events = 0
        self._closed = False

    # -- written by the Bot API
    # -------------------------------------------------------------------------------

    def add(self, call: Call, message: Message | None = None) -> tuple[Call, Message | None]:
        """Keeps a call and the message that it created, and gives them back numbered.

        Who waits sees both or neither.
        """
        with self._changed:
            self._call_seq += 1
            call = replace(call, seq=self._call_seq)
            self._calls.append(call)
            if message is not None:
                self._message_seq += 1
                message = replace(message, seq=self._message_seq)
                self._messages[message.chat_id, message.message_id] = message
                while len(self._messages) > self._keep:
                    del self._messages[next(iter(self._messages))]
            self._wake()
        return call, message

    def change_message(self, message: Message) -> None:
        """Replaces a message by a later state of it, unless it was forgotten."""
        with self._changed:
            key = (message.chat_id, message.message_id)
            before = self._messages.get(key)
            if before is not None:
                self._messages[key] = replace(message, seq=before.seq)
                self._wake()

    def _wake(self) -> None:
        self._events += 1
        self._changed.notify_all()

    # -- asked by tests
    # ---------------------------------------------------------------------------------------

    def messages(self, chat: int | None = None, text: TextFilter | None = None) -> list[Message]:
        """Accepted messages in order of acceptance.

        Args:
            chat: Only of this chat.
            text: Only with this raw text, exactly; a compiled pattern is searched for in the raw text.
        """
        with self._changed:
            return [m for m in self._messages.values() if _fits(m, chat, text)]

    def calls(
        self,
        method: str | None = None,
        chat: int | str | None = None,
        status: int | None = None,
        accepted: bool | None = None,
    ) -> list[Call]:
        """Calls of the Bot API in the order of their answers, refused and broken ones included.

        Args:
            method: Only of this method, in any letter case.
            chat: Only with this ``chat_id``.
            status: Only answered with this HTTP status.
            accepted: Only those that did, or did not, create a message.
        """
        with self._changed:
            return [
                call
                for call in self._calls
                if (method is None or call.method.lower() == method.lower())
                and (chat is None or call.chat_id == str(chat))
                and (status is None or call.status == status)
                and (accepted is None or call.accepted is accepted)
            ]

    def wait_messages(
        self, count: int, chat: int | None, text: TextFilter | None, timeout_seconds: float
    ) -> list[Message]:
        """Waits until at least `count` messages pass the filters of `messages`, and returns them.

        Raises:
            TimeoutError: They did not within `timeout_seconds`, or the sandbox stopped; says what had come.
        """
        return self._wait(lambda: self.messages(chat, text), count, timeout_seconds, "messages")

    def wait_calls(self, look: Callable[[], list[Call]], count: int, timeout_seconds: float) -> list[Call]:
        """Waits until `look`, a call of `calls`, gives at least `count`, and returns them.

        Raises:
            TimeoutError: It did not within `timeout_seconds`, or the sandbox stopped; says what had come.
        """
        return self._wait(look, count, timeout_seconds, "calls")

    def _wait(self, look: Callable[[], list[T]], count: int, timeout_seconds: float, what: str) -> list[T]:
        if count > self._keep:
            raise ValueError(f"only {self._keep} {what} are kept; {count} will never be there")
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                seen = look()
                if len(seen) >= count:
                    return seen
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    break
                # What is missing takes at least as many events; looking sooner would make a long wait
                # quadratic.
                enough = self._events + count - len(seen)
                self._changed.wait_for(lambda: self._closed or self._events >= enough, left)  # noqa: B023
        shown = ", ".join(_short(item) for item in seen[-10:]) or "nothing"
        why = "the sandbox stopped" if self._closed else f"{timeout_seconds:g} s had gone by"
        raise TimeoutError(f"{len(seen)} of {count} {what} when {why}; seen: {shown}")

    def duplicates(self) -> list[list[Message]]:
        """Groups of two or more messages with the same raw text in the same chat."""
        groups: dict[tuple[int, str], list[Message]] = {}
        for message in self.messages():
            groups.setdefault((message.chat_id, message.raw_text), []).append(message)
        return [group for group in groups.values() if len(group) > 1]

    def order(self) -> dict[int, list[str]]:
        """The raw texts of each chat in order of acceptance."""
        chats: dict[int, list[str]] = {}
        for message in self.messages():
            chats.setdefault(message.chat_id, []).append(message.raw_text)
        return chats

    def order_breaks(self, number: re.Pattern[str]) -> list[OrderBreak]:
        """Messages that came after one of a higher number in their chat; `number`'s last match is the number.

        Texts without a number are passed over, and so is a text that was received before: that is a
        duplicate.
        """
        return [found for chat, texts in self.order().items() for found in _breaks(chat, texts, number)]

    def clear(self) -> None:
        """Forgets messages and calls; message ids and sequence numbers go on growing."""
        with self._changed:
            self._messages.clear()
            self._calls.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Ends every wait; `open` takes it back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def open(self) -> None:
        """Lets waits wait again."""
        with self._changed:
            self._closed = False


def _fits(message: Message, chat: int | None, text: TextFilter | None) -> bool:
    if chat is not None and message.chat_id != chat:
        return False
    if text is None:
        return True
    return message.raw_text == text if isinstance(text, str) else text.search(message.raw_text) is not None


def _breaks(chat_id: int, texts: list[str], number: re.Pattern[str]) -> Iterator[OrderBreak]:
    seen: set[str] = set()
    highest, highest_text = 0, ""
    for text in texts:
        found = None if text in seen else list(number.finditer(text))
        seen.add(text)
        if not found:
            continue
        value = int(found[-1][1] if number.groups else found[-1][0])
        if highest_text and value < highest:
            yield OrderBreak(chat_id, highest_text, text)
        else:
            highest, highest_text = value, text


def _short(item: object) -> str:
    if isinstance(item, Message):
        return f"{item.chat_id}: {item.raw_text[:40]!r}"
    if isinstance(item, Call):
        return f"{item.method} {item.chat_id} -> {item.status}"
    return repr(item)
