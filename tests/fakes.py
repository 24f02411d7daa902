"""In-memory stand-ins at the two seams of the worker: JetStream and the Bot API."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from telegram_connector.delivery import DeadLetter, Delivery, DeliveryId, Reset
from telegram_connector.disposition import Disposition, Sent
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.errors import Unanswered

PATIENCE_SECONDS = 30.0  # a bound for a broken test, not a figure that a working one depends on
T = TypeVar("T")


def done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def make_delivery(sequence: int, text: str = "hello", chat: str | None = "7", **more: Any) -> Delivery:
    """A delivery with a long lease; `payload`, `headers` and fields of `Delivery` may be given."""
    payload = more.pop("payload", None)
    envelope = more.pop("envelope", None) or TelegramOutbound(msg_id=f"m{sequence}", chat=chat, text=text)
    fields: dict[str, Any] = {
        "id": DeliveryId("S", sequence, 1_000 + sequence),
        "payload": encode(envelope) if payload is None else payload,
        "headers": {"Nats-Msg-Id": f"m{sequence}"},
        "reply": f"$JS.ACK.S.d.1.{sequence}.{sequence}.{1000 + sequence}.0",
        "hand_over": 1,
        "leased_until": float("inf"),
    }
    return Delivery(**(fields | more))


class FakeSource:
    """A `MessageSource` that hands out what a test puts in and notes what it is told."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Delivery | Reset | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._listener: Callable[[], None] = lambda: None
        self.told: list[tuple[Any, ...]] = []
        self.sendable = True
        self.floor = 0
        self.in_stream: set[int] = set()
        self.wanted = 0
        self.dead: list[DeadLetter] = []
        self.keeps = True
        self.announced: list[dict[str, Any]] = []
        self.max_age: float | None = None

    def put(self, *entries: Delivery | Reset) -> None:
        for entry in entries:
            self._queue.put(entry)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), self.told[-20:]

    def note(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _tell(self, *what: Any) -> Future[bool]:
        with self._changed:
            self.told.append(what)
            self._changed.notify_all()
        return done(True)

    def next(self, timeout_seconds: float) -> Delivery | Reset | None:
        try:
            return self._queue.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def ack(self, delivery: Delivery) -> Future[bool]:
        return self._tell("ack", delivery.id.sequence)

    def nak(self, delivery: Delivery, delay_seconds: float) -> Future[bool]:
        return self._tell("nak", delivery.id.sequence, round(delay_seconds, 6))

    def term(self, delivery: Delivery, reason: str, dead_letter: DeadLetter | None = None) -> Future[bool]:
        if dead_letter is not None:
            self.dead.append(dead_letter)
        return self._tell("term", delivery.id.sequence, reason)

    def keeps_dead_letters(self) -> bool:
        return self.keeps

    def announce(self, event: bytes) -> None:
        with self._changed:
            self.announced.append(json.loads(event))
            self._changed.notify_all()

    def max_age_seconds(self) -> float | None:
        return self.max_age

    def extend(self, deliveries: Sequence[Delivery]) -> Future[float | None]:
        self._tell("extend", *(d.id.sequence for d in deliveries))
        return done(None)

    def present(self, sequence: int) -> Future[bool | None]:
        return done(sequence in self.in_stream)

    def want(self, count: int) -> None:
        self.wanted = count

    def may_send(self, workers: int) -> bool:
        return self.sendable

    def active(self) -> bool:
        return True

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def allow(self, sendable: bool) -> None:
        self.sendable = sendable
        self._listener()

    def ack_wait_seconds(self) -> float:
        return 60.0

    def ack_floor(self) -> int:
        return self.floor

    def stop_pulling(self, timeout_seconds: float) -> None:
        pass

    def wake(self) -> None:
        self._queue.put(None)


class FakeStore:
    """A `Store` in a dict."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.fails = False

    def get(self, key: str) -> Future[bytes | None]:
        if self.fails:
            failed: Future[bytes | None] = Future()
            failed.set_exception(Unanswered("no answer"))
            return failed
        return done(self.documents.get(key))

    def put(self, key: str, value: bytes) -> Future[None]:
        self.documents[key] = value
        return done(None)


class FakeApi:
    """A `BotApi` that answers from a script per text, `Sent` once that is used up."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self.script: dict[str, list[Disposition | Exception | threading.Event]] = {}
        self.me: list[Disposition] = []
        self.refuse_all: Disposition | None = None
        self.refuse_texts: dict[str, Disposition] = {}
        self.refuse_next_alert: Disposition | None = None
        self.sent: list[tuple[str, str]] = []
        self.tried: list[tuple[str, str]] = []
        self.knocks = 0
        self.aborted: list[int | None] = []
        self._waits: list[threading.Event] = []
        self.heeds_abort = True

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Disposition:
        self.tried.append((chat_id, envelope.text))
        self._source.note()
        if self.refuse_all is not None:
            return self.refuse_all
        if envelope.text in self.refuse_texts:
            return self.refuse_texts[envelope.text]
        if envelope.text.startswith("dropped") and self.refuse_next_alert is not None:
            refusal, self.refuse_next_alert = self.refuse_next_alert, None
            return refusal
        script = self.script.get(envelope.text, [])
        answer = script.pop(0) if script else Sent(len(self.sent) + 1)
        if isinstance(answer, threading.Event):
            self._waits.append(answer)
            answer.wait(PATIENCE_SECONDS)
            answer = script.pop(0) if script else Sent(len(self.sent) + 1)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Sent):
            self.sent.append((chat_id, envelope.text))
            self._source.note()
        return answer

    def get_me(self, deadline: float, *, number: int | None = None) -> Disposition:
        self.knocks += 1
        self._source.note()
        return self.me.pop(0) if self.me else Sent(None)

    def abort(self, number: int | None = None) -> bool:
        self.aborted.append(number)
        for waiting in self._waits if self.heeds_abort else ():
            waiting.set()
        return self.heeds_abort

    def close(self) -> None:
        pass


class HandClock:
    """Monotonic seconds that a test moves; threads that wait for real are woken by the mover."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead
