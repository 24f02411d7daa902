"""Ten minutes without Telegram, a backlog of a thousand: nothing is dropped, and it is left in peace.

Everything but JetStream and the Bot API is the real worker, with its threads, on a simulated clock: one
thread runs at a time, and when all of them wait the clock moves on to the first that is due. So ten minutes
pass in a second, and always in the same way.
"""

from __future__ import annotations

import collections
import heapq
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector import worker as worker_module
from telegram_connector.alerts import Alerts
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import DeadLetter, Delivery, DeliveryId, Reset
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Disposition,
    Sent,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.settlement import Policy
from telegram_connector.state import State
from telegram_connector.worker import Rules, Worker
from tests.fakes import FakeStore, done

BACKLOG = 1000
CHATS = 50
OUTAGE_SECONDS = 600.0
EPOCH = 1_700_000_000.0
ACK_WAIT_SECONDS = 60.0
READ_TIMEOUT_SECONDS = 30.0
ANSWER_SECONDS = 0.05


class _Task:
    """A thread of the simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wake = float("inf")
        self.channel: object = None
        self.ended = False
        self.go = threading.Semaphore(0)


class Simulation:
    """Threads that run one at a time on a clock of their own.

    Where a thread would wait, it hands over to the next that was notified; when there is none, the clock
    moves to the first that is due.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self._current = _Task("test")
        self._tasks = [self._current]
        self._notified: collections.deque[_Task] = collections.deque()

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return EPOCH + self.now

    def wait(self, until: float, channel: object = None) -> bool:
        """Let others run until the time comes (False) or the channel is notified (True)."""
        task = self._current
        task.wake, task.channel = until, channel
        following = self._next()
        if following is not task:
            following.go.release()
            task.go.acquire()
        notified = task.channel is None and channel is not None
        task.channel = None
        return notified

    def _next(self) -> _Task:
        if self._notified:
            following = self._notified.popleft()
        else:
            following = min((t for t in self._tasks if not t.ended), key=lambda t: t.wake)
            self.now = max(self.now, following.wake)
        following.wake = float("inf")
        self._current = following
        return following

    def notify(self, channel: object, count: int | None = None) -> None:
        waiting = [task for task in self._tasks if task.channel is channel and not task.ended]
        for task in waiting[:count]:
            task.channel = None
            task.wake = float("inf")
            self._notified.append(task)

    def until(self, condition: Callable[[], bool], within_seconds: float) -> None:
        deadline = self.now + within_seconds
        while not condition():
            assert self.now < deadline, f"not within {within_seconds} simulated seconds"
            self.wait(self.now + 1.0)

    def begin(self, task: _Task, run: Callable[[], None]) -> None:
        def body() -> None:
            task.go.acquire()
            try:
                run()
            finally:
                task.ended = True
                self.notify(task)
                self._next().go.release()

        self._tasks.append(task)
        self._notified.append(task)
        threading.Thread(target=body, daemon=True).start()

    def threading(self) -> SimpleNamespace:
        """What the worker uses of the module of that name."""
        return SimpleNamespace(
            Condition=lambda: _Condition(self),
            Event=lambda: _Event(self),
            Thread=lambda **how: _Thread(self, **how),
            current_thread=lambda: self._current,
        )


class _Condition:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def __enter__(self) -> None:
        pass  # nobody else runs

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        return self._simulation.wait(self._simulation.now + seconds, self)

    def notify(self) -> None:
        self._simulation.notify(self, 1)

    def notify_all(self) -> None:
        self._simulation.notify(self)


class _Event:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._simulation.notify(self)

    def wait(self, seconds: float) -> bool:
        if not self._set:
            self._simulation.wait(self._simulation.now + seconds, self)
        return self._set


class _Thread(_Task):
    def __init__(
        self, simulation: Simulation, *, target: Callable[..., None], args: tuple, name: str, daemon: bool
    ) -> None:
        super().__init__(name)
        self._simulation = simulation
        self._run = lambda: target(*args)

    def start(self) -> None:
        self._simulation.begin(self, self._run)

    def is_alive(self) -> bool:
        return not self.ended

    def join(self, seconds: float) -> None:
        if not self.ended:
            self._simulation.wait(self._simulation.now + seconds, self)


class JetStream:
    """A stream and its durable consumer in memory, as a `MessageSource`.

    What is nak'd comes back when due, what is not settled after ack_wait, before anything new and in no
    order.
    """

    def __init__(self, simulation: Simulation, envelopes: Sequence[TelegramOutbound]) -> None:
        self._simulation = simulation
        self._stored = [encode(e) for e in envelopes]
        self._next_new = 1
        self._due: dict[int, float] = {}  # of what is out: when it is handed over again
        self._timers: list[tuple[float, int]] = []
        self._hand_overs: collections.Counter[int] = collections.Counter()
        self._settled: set[int] = set()
        self._wanted = 0
        self._woken = False
        self._floor = 0
        self._random = random.Random(1)
        self._listener: Callable[[], None] = lambda: None
        self.acked: list[int] = []
        self.dead: list[tuple[int, str]] = []
        self.handed_over = 0

    @property
    def left(self) -> int:
        return len(self._stored) - len(self._settled)

    def next(self, timeout_seconds: float) -> Delivery | Reset | None:
        deadline = self._simulation.now + timeout_seconds
        while True:
            if self._woken:
                self._woken = False
                return None
            delivery = self._hand_over()
            if delivery is not None or self._simulation.now >= deadline:
                return delivery
            due = self._timers[0][0] if self._timers and self._wanted > 0 else deadline
            self._simulation.wait(min(deadline, max(due, self._simulation.now)), self)

    def _hand_over(self) -> Delivery | None:
        if self._wanted <= 0:
            return None
        due = []
        while self._timers and self._timers[0][0] <= self._simulation.now:
            entry = heapq.heappop(self._timers)
            if self._due.get(entry[1]) == entry[0]:
                due.append(entry)
        if due:
            sequence = due.pop(self._random.randrange(len(due)))[1]
            for entry in due:
                heapq.heappush(self._timers, entry)
        elif self._next_new <= len(self._stored):
            sequence, self._next_new = self._next_new, self._next_new + 1
        else:
            return None
        self._wanted -= 1
        self.handed_over += 1
        self._hand_overs[sequence] += 1
        self._put_off(sequence, ACK_WAIT_SECONDS)
        return Delivery(
            DeliveryId("S", sequence, int(EPOCH * 1e9) + sequence),
            self._stored[sequence - 1],
            {},
            f"$JS.ACK.S.d.1.{sequence}",
            self._hand_overs[sequence],
            self._simulation.now + ACK_WAIT_SECONDS,
        )

    def _put_off(self, sequence: int, seconds: float) -> None:
        self._due[sequence] = self._simulation.now + seconds
        heapq.heappush(self._timers, (self._due[sequence], sequence))

    def _settle(self, sequence: int) -> None:
        self._settled.add(sequence)
        self._due.pop(sequence, None)
        while self._floor + 1 in self._settled:
            self._floor += 1

    def ack(self, delivery: Delivery) -> Future[bool]:
        self.acked.append(delivery.id.sequence)
        self._settle(delivery.id.sequence)
        return done(True)

    def nak(self, delivery: Delivery, delay_seconds: float) -> Future[bool]:
        assert self._due[delivery.id.sequence] > self._simulation.now, "a nak after the lease"
        self._put_off(delivery.id.sequence, delay_seconds)
        return done(True)

    def term(self, delivery: Delivery, reason: str, dead_letter: DeadLetter | None = None) -> Future[bool]:
        self.dead.append((delivery.id.sequence, reason))
        self._settle(delivery.id.sequence)
        return done(True)

    def extend(self, deliveries: Sequence[Delivery]) -> Future[float | None]:
        for delivery in deliveries:
            self._put_off(delivery.id.sequence, ACK_WAIT_SECONDS)
        return done(self._simulation.now + ACK_WAIT_SECONDS)

    def want(self, count: int) -> None:
        self._wanted = count
        if count > 0:
            self._simulation.notify(self)

    def wake(self) -> None:
        self._woken = True
        self._simulation.notify(self)

    def stop_pulling(self, timeout_seconds: float) -> None:
        self._wanted = 0

    def active(self) -> bool:
        return True

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def present(self, sequence: int) -> Future[bool | None]:
        return done(True)

    def may_send(self, workers: int) -> bool:
        return True

    def ack_floor(self) -> int:
        return self._floor

    def ack_wait_seconds(self) -> float:
        return ACK_WAIT_SECONDS

    def max_age_seconds(self) -> float | None:
        return 24 * 3600.0

    def keeps_dead_letters(self) -> bool:
        return True

    def announce(self, event: bytes) -> None:
        pass


Fault = Callable[["Telegram", str, float], Disposition]


class Telegram:
    """The Bot API, which a fault has taken over while there is one."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.fault: Fault | None = None
        self.over_at = 0.0
        self.sent: list[tuple[str, str]] = []
        self.knocks: list[tuple[float, str]] = []

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Disposition:
        disposition = self._answer("sendMessage", deadline)
        if isinstance(disposition, Sent):
            self.sent.append((chat_id, envelope.text))
        return disposition

    def get_me(self, deadline: float, *, number: int | None = None) -> Disposition:
        return self._answer("getMe", deadline)

    def _answer(self, method: str, deadline: float) -> Disposition:
        if self.fault is None:
            self.spend(ANSWER_SECONDS)
            return Sent(1)
        self.knocks.append((self.simulation.now, method))
        return self.fault(self, method, deadline)

    def spend(self, seconds: float) -> None:
        self.simulation.wait(self.simulation.now + seconds)

    def abort(self, number: int | None = None) -> bool:
        return False

    def close(self) -> None:
        pass


# The kinds of outage.


def refused(telegram: Telegram, method: str, deadline: float) -> Disposition:
    return Unavailable("Connection refused")


def bad_gateway(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(ANSWER_SECONDS)
    return Transient(502, "HTTP 502 without a description")


def bad_gateway_timeout(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(10.0)
    return Ambiguous("HTTP 504 without a description", 504)


def silent(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(min(READ_TIMEOUT_SECONDS, max(0.0, deadline - telegram.simulation.now)))
    return Ambiguous("no answer in time")


def reset(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(ANSWER_SECONDS)
    return Ambiguous("Connection reset by peer")


def flood_until_it_is_over(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(ANSWER_SECONDS)
    seconds = float(int(telegram.over_at - telegram.simulation.now) + 1)
    return Transient(429, f"Too Many Requests: retry after {seconds:.0f}", seconds)


def flood_of_five_seconds(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(ANSWER_SECONDS)
    return Transient(429, "Too Many Requests: retry after 5", 5.0)


def flood_without_a_time(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(ANSWER_SECONDS)
    return Transient(429, "Too Many Requests")


def revoked(telegram: Telegram, method: str, deadline: float) -> Disposition:
    telegram.spend(ANSWER_SECONDS)
    return BotFault(401, "Unauthorized")


def only_sending(fault: Fault) -> Fault:
    """`getMe` is answered as ever."""

    def faulty(telegram: Telegram, method: str, deadline: float) -> Disposition:
        if method == "sendMessage":
            return fault(telegram, method, deadline)
        telegram.spend(ANSWER_SECONDS)
        return Sent(None)

    return faulty


class Outage:
    """A worker with a backlog before it, on a simulated clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chats: int = CHATS, workers: int = 1) -> None:
        self.simulation = Simulation()
        monkeypatch.setattr(worker_module, "threading", self.simulation.threading())
        self.envelopes = [
            TelegramOutbound(msg_id=f"m{n}", chat=str(100 + n % chats), text=f"text {n}")
            for n in range(BACKLOG)
        ]
        self.source = JetStream(self.simulation, self.envelopes)
        self.telegram = Telegram(self.simulation)
        self.events: list[events.Event] = []
        self.deaths: list[BaseException] = []
        self.worker = Worker(
            self.source,
            [self.telegram] * workers,
            State(FakeStore(), self.events.append),
            Policy(ACK_WAIT_SECONDS, max_attempts=5, backoff_seconds=30.0),  # the defaults of the settings
            Rules("1", 10_000),
            Alerts("tg_outbound", tell_chat=False),
            observe=self.events.append,
            on_death=lambda name, error: self.deaths.append(error),
            random=random.Random(7).random,
            lease_clock=LeaseClock(self.simulation.clock, self.simulation.clock),
            clock=self.simulation.clock,
            wall=self.simulation.wall,
        )

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    def last(self, fault: Fault, seconds: float = OUTAGE_SECONDS) -> None:
        """Have the fault for so long."""
        self.telegram.over_at = self.simulation.now + seconds
        self.telegram.fault = fault
        self.simulation.wait(self.telegram.over_at)
        self.telegram.fault = None

    def costs(self) -> int:
        """The most attempts that any message has been charged."""
        return max((e.attempt for e in self.of(events.Attempted)), default=0)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    made = Outage(monkeypatch)
    made.worker.start()
    yield made
    made.worker.stop(made.simulation.now + 20)
    assert not made.deaths


# What it may take of knocks at Telegram in ten minutes: (sends, `getMe`s). A message that cannot be connected
# for is tried three times within seconds, so 15 trials are 45 sends; of a flood of 5 s three chats come back
# each time, as Telegram told them to.
KINDS = [
    pytest.param(refused, 45, 0, id="refused"),
    pytest.param(bad_gateway, 16, 1, id="502"),
    pytest.param(only_sending(bad_gateway), 17, 1, id="502-sendMessage"),
    pytest.param(silent, 2, 15, id="silent"),
    pytest.param(only_sending(silent), 15, 15, id="silent-sendMessage"),
    pytest.param(reset, 2, 16, id="reset"),
    pytest.param(only_sending(reset), 17, 16, id="reset-sendMessage"),
    pytest.param(bad_gateway_timeout, 2, 16, id="504"),
    pytest.param(only_sending(bad_gateway_timeout), 17, 16, id="504-sendMessage"),
    pytest.param(flood_until_it_is_over, 3, 0, id="429-once"),
    pytest.param(flood_of_five_seconds, 360, 0, id="429-every-5-s"),
    pytest.param(flood_without_a_time, 66, 0, id="429-without-a-time"),
    pytest.param(revoked, 1, 16, id="401"),
    pytest.param(only_sending(revoked), 17, 16, id="401-sendMessage"),
]
LOSE_ANSWERS = ("silent", "reset", "504")


def sent_to(outage: Outage, chat: str) -> list[str]:
    return [text for to, text in outage.telegram.sent if to == chat]


@pytest.mark.parametrize(("fault", "sends", "asked"), KINDS)
def test_ten_minutes_without_telegram_drop_nothing_and_do_not_hammer_it(
    outage: Outage, request: pytest.FixtureRequest, fault: Fault, sends: int, asked: int
) -> None:
    outage.last(fault)
    assert outage.source.dead == []
    assert outage.telegram.sent == []
    knocks = collections.Counter(method for _, method in outage.telegram.knocks)
    assert knocks["sendMessage"] <= sends
    assert knocks["getMe"] <= asked
    # Only where the answer was lost is the message in doubt, and far from being given up.
    lost = request.node.callspec.id.startswith(LOSE_ANSWERS)
    assert outage.costs() <= (3 if lost else 1)
    outage.simulation.until(lambda: outage.source.left == 0, within_seconds=BACKLOG * ANSWER_SECONDS + 150)
    assert outage.source.dead == []
    for chat in {e.chat for e in outage.envelopes if e.chat}:
        assert sent_to(outage, chat) == [e.text for e in outage.envelopes if e.chat == chat]
    assert len(outage.telegram.sent) == BACKLOG
    assert outage.of(events.BotHeld)
    assert not outage.of(events.LeaseLapsed)


@pytest.mark.parametrize(
    "fault", [refused, bad_gateway, silent, reset, bad_gateway_timeout, flood_of_five_seconds, revoked]
)
def test_with_one_chat_alone_it_is_the_same(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """No second chat says that it is the bot, but `getMe` does."""
    outage = Outage(monkeypatch, chats=1)
    outage.worker.start()
    outage.last(fault)
    outage.simulation.until(lambda: outage.source.left == 0, within_seconds=BACKLOG * ANSWER_SECONDS + 150)
    assert outage.source.dead == []
    assert [text for _, text in outage.telegram.sent] == [e.text for e in outage.envelopes]
    outage.worker.stop(outage.simulation.now + 20)
    assert not outage.deaths


@pytest.mark.parametrize("fault", [bad_gateway, silent, reset])
def test_one_chat_that_fails_while_the_bot_is_well_is_the_messages_own_failure(
    monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """Nothing tells it from a message that Telegram chokes on: one is given up after five attempts."""
    outage = Outage(monkeypatch, chats=1)
    outage.worker.start()
    outage.last(only_sending(fault))
    outage.simulation.until(lambda: outage.source.left == 0, within_seconds=BACKLOG * ANSWER_SECONDS + 300)
    assert outage.source.dead == [(1, "gave_up")]
    assert [text for _, text in outage.telegram.sent] == [e.text for e in outage.envelopes[1:]]
    outage.worker.stop(outage.simulation.now + 20)


@pytest.mark.parametrize("fault", [refused, silent, reset, revoked])
def test_a_whole_night_without_telegram_drops_nothing(outage: Outage, fault: Fault) -> None:
    outage.last(fault, 8 * 3600.0)
    assert len(outage.telegram.knocks) <= 3 * 8 * 60 + 45  # one trial a minute
    outage.simulation.until(lambda: outage.source.left == 0, within_seconds=BACKLOG * ANSWER_SECONDS + 150)
    assert outage.source.dead == []
    assert outage.costs() <= 1
    assert len(outage.telegram.sent) == BACKLOG


@pytest.mark.parametrize("fault", [refused, bad_gateway, silent, revoked])
def test_four_senders_knock_no_more_than_one(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    outage = Outage(monkeypatch, workers=4)
    outage.worker.start()
    outage.last(fault)
    assert len(outage.telegram.knocks) <= 45 + 3 * 3 + 4  # and what was out when it began
    outage.simulation.until(lambda: outage.source.left == 0, within_seconds=BACKLOG * ANSWER_SECONDS + 150)
    assert outage.source.dead == []
    for chat in {e.chat for e in outage.envelopes if e.chat}:
        assert sent_to(outage, chat) == [e.text for e in outage.envelopes if e.chat == chat]
    outage.worker.stop(outage.simulation.now + 20)
    assert not outage.deaths


def test_the_simulation_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    knocks = []
    for _ in range(2):
        outage = Outage(monkeypatch, workers=3)
        outage.worker.start()
        outage.last(only_sending(silent), 300)
        outage.worker.stop(outage.simulation.now + 20)
        knocks.append(outage.telegram.knocks)
    assert knocks[0] == knocks[1]
