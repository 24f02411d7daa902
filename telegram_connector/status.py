"""What a running connector says of itself: figures, holds and pauses; no message's text, no token. Pure.

The record is what goes over NATS; docs/operations.md describes its fields.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from telegram_connector.clock import timestamp
from telegram_connector.disposition import Sent, Terminal
from telegram_connector.events import Attempted, Event
from telegram_connector.lanes import Lanes
from telegram_connector.pauses import Pauses
from telegram_connector.rates import Rate

VERSION = 1
NAMED = 20  # holds and pauses that are listed; all are counted
MAX_REASON = 200
MINUTES = (1, 5, 15)

# A request with this body has the connector read anew what is paused before it answers; any other has not.
READ_PAUSES = b"pauses"

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Hold(msgspec.Struct, frozen=True):
    """A chat that is sent nothing for now."""

    chat: str
    ends_in_seconds: float
    waiting: _Count


class BotHold(msgspec.Struct, frozen=True):
    """The bot sends nothing, or one trial at a time; `fault` says that its token or account is refused."""

    reason: str
    fault: bool
    held_seconds: float
    next_try_in_seconds: float


class PausedNow(msgspec.Struct, frozen=True):
    """What an operator has paused; `chat` is None for the bot, `ends_in_seconds` for until resumed."""

    chat: str | None
    since: str
    ends_in_seconds: float | None
    reason: str
    waiting: _Count


class Rates(msgspec.Struct, frozen=True):
    """How many a minute, over the last 1, 5 and 15 minutes."""

    sent: tuple[float, float, float]
    retried: tuple[float, float, float]
    dropped: tuple[float, float, float]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What the lanes hold at one moment."""

    outstanding: _Count
    waiting: _Count
    in_flight: _Count
    awaited: _Count
    limit: _Count
    unconfirmed: _Count
    holds: list[Hold]
    holds_in_all: _Count
    bot: BotHold | None
    pauses: list[PausedNow]
    pauses_in_all: _Count
    lanes: _Count = 0
    longest_hold_seconds: float = 0.0
    oldest_seconds: float = 0.0


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages since the start of the process."""

    sent: _Count
    retried: _Count
    dropped: dict[str, _Count]
    last_sent_at: str | None
    rates: Rates


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One connector's answer."""

    v: int = VERSION
    id: str
    host: str
    pid: int
    version: str
    stream: str
    durable: str
    role: Literal["active", "standby"]
    sending: bool
    up_seconds: float
    connected_seconds: float
    work: Work
    tally: Tally


def encode(status: Status) -> bytes:
    """The answer's bytes."""
    return msgspec.json.encode(status)


def decode(answer: bytes) -> Status:
    """Read an answer.

    Raises:
        ValueError: It is none.
    """
    try:
        return msgspec.json.decode(answer, type=Status)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no ValueError in msgspec 0.18
        raise ValueError(str(error)) from None


def read_answers(answers: list[bytes], stream: str) -> tuple[list[Status], int]:
    """The answers of this stream's connectors, and how many others are no status at all.

    A stream that takes the request's subject answers too, as it does to whatever is published.
    """
    connectors: list[Status] = []
    strange = 0
    for answer in answers:
        try:
            status = decode(answer)
        except ValueError:
            strange += 1
        else:
            if status.stream == stream:
                connectors.append(status)
    return connectors, strange


class Figures:
    """Counts what becomes of messages, as an observer of events. Thread-safe.

    Args:
        clock: Monotonic seconds.
        wall: Seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._sent, self._retried, self._dropped = Rate(), Rate(), Rate()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._last_sent: float | None = None

    def observe(self, event: Event) -> None:
        """Count an attempt."""
        if not isinstance(event, Attempted):
            return
        with self._lock:
            now = self._clock()
            match event.disposition:
                case Sent():
                    self._sent.note(now)
                    self._counts["sent"] += 1
                    self._last_sent = self._wall()
                case Terminal(reason=reason):
                    self._dropped.note(now)
                    self._reasons[reason] += 1
                case _:
                    self._retried.note(now)
                    self._counts["retried"] += 1

    def tally(self) -> Tally:
        """The figures of now."""
        with self._lock:
            now = self._clock()
            return Tally(
                sent=self._counts["sent"],
                retried=self._counts["retried"],
                dropped=dict(self._reasons),
                last_sent_at=None if self._last_sent is None else timestamp(self._last_sent),
                rates=Rates(_rates(self._sent, now), _rates(self._retried, now), _rates(self._dropped, now)),
            )


def _rates(rate: Rate, now: float) -> tuple[float, float, float]:
    one, five, fifteen = (round(rate.per_minute(now, minutes), 2) for minutes in MINUTES)
    return one, five, fifteen


def work_of(lanes: Lanes, pauses: Pauses, unconfirmed: int, now: float, wall: float) -> Work:
    """What the lanes hold; to be called under the worker's lock.

    Of holds those with most messages waiting are listed, of pauses the bot's and then those of most messages.

    Args:
        unconfirmed: How many settlements JetStream has not confirmed.
        now: Monotonic seconds.
        wall: Seconds since 1970.
    """
    held = lanes.held(now)
    fullest = heapq.nsmallest(NAMED, held, key=lambda chat: (-lanes.waiting_for(chat), chat))
    paused = pauses.current(wall).all()
    listed = heapq.nsmallest(NAMED, paused, key=lambda chat: (chat != "", -lanes.waiting_for(chat), chat))
    return Work(
        outstanding=lanes.outstanding,
        waiting=lanes.waiting,
        in_flight=lanes.in_flight,
        awaited=lanes.awaited,
        limit=lanes.max_pending,
        unconfirmed=unconfirmed,
        holds=[Hold(c, round(held[c] - now, 1), lanes.waiting_for(c)) for c in fullest],
        holds_in_all=len(held),
        bot=_bot(lanes, now),
        pauses=[
            PausedNow(
                chat or None,
                timestamp(pause.since),
                None if pause.until is None else round(pause.until - wall, 1),
                pause.reason[:MAX_REASON],
                lanes.waiting_for(chat) if chat else lanes.waiting,
            )
            for chat, pause in ((chat, paused[chat]) for chat in listed)
        ],
        pauses_in_all=len(paused),
        lanes=lanes.count,
        longest_hold_seconds=round(max(held.values(), default=now) - now, 1),
        oldest_seconds=_age(lanes, wall),
    )


def _age(lanes: Lanes, wall: float) -> float:
    """How long the oldest message that waits here has been in the stream; another's clock may be ahead."""
    oldest = lanes.oldest()
    return 0.0 if oldest is None else max(0.0, round(wall - oldest.delivery.id.stored_at_ns / 1e9, 1))


def _bot(lanes: Lanes, now: float) -> BotHold | None:
    gate = lanes.gate
    if not gate.reason:
        return None
    next_try = max(0.0, gate.held_until - now)
    return BotHold(gate.reason[:MAX_REASON], gate.fault, round(now - gate.closed_at, 1), round(next_try, 1))
