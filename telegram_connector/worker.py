"""The threads: one reads deliveries into the lanes and keeps them ours, the others send.

The one lock around the lanes is here. Nothing is sent or waited for while it is held.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass
from typing import TypeVar

from telegram_connector.alerts import Alerts
from telegram_connector.attempt import Attempt, BotApi, Surroundings, attempt
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Delivery, Entry, MessageSource, Missed, Reset, StandDown, Taken
from telegram_connector.disposition import (
    Ambiguous,
    Concluded,
    Deferred,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
)
from telegram_connector.envelope import TelegramOutbound, decode, expiry, msg_id_mismatch
from telegram_connector.errors import EnvelopeError
from telegram_connector.events import (
    AlertFailed,
    AttemptCrashed,
    BecameStandby,
    ChatHeld,
    MsgIdDiffers,
    Observer,
    Received,
    ThreadDied,
)
from telegram_connector.lanes import Item, Lanes
from telegram_connector.ledger import Ledger, NullLedger, Outgoing
from telegram_connector.pacing import Pacing, Rates
from telegram_connector.pausing import Pausing
from telegram_connector.settlement import Policy
from telegram_connector.settling import Settling, subject_of, why
from telegram_connector.state import LOAD_AGAIN_SECONDS, Left, State
from telegram_connector.status import Work, work_of
from telegram_connector.tracing import Tracing, untraced
from telegram_connector.upkeep import Upkeep

TICK_SECONDS = 0.5
LOOK_SECONDS = 1.0  # a sender that nobody wakes looks for work as often
READ_AT_ONCE = 64
SEND_SECONDS = 36.0  # connecting (5 s), reading (30 s) and a little: the longest a send can take
STOP_RESERVE_SECONDS = 1.5  # of the drain budget, kept for settling what a cut-off send leaves
EXPIRY_MARGIN_SECONDS = 600.0  # before the stream's own max_age: time to store the dead letter
ALERTS_KEPT = 20  # that wait for the operator's chat or the bot to be free
UNREADABLE_LANE = ""
EXPIRED = Terminal(0, "expired before it could be sent", "expired")

T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """What of the settings the worker itself heeds.

    Attributes:
        default_chat: Where envelopes without a chat go, and alerts.
        max_pending: How many messages may be out at once.
        max_age_seconds: Age after which a message is dropped unsent; None for the stream's limit alone.
        rates: How fast to send at most; None where Telegram alone decides.
        falls_back: Whether a message whose markup cannot be parsed is sent as plain text.
    """

    default_chat: str
    max_pending: int
    max_age_seconds: float | None = None
    rates: Rates | None = None
    falls_back: bool = False


@dataclass(eq=False)
class _Sending:
    api: BotApi
    number: int
    deadline: float


class _Knock:
    """The next thing to do is to ask `getMe`."""


@dataclass(frozen=True)
class _Expired:
    """The next thing to do is to find out whether this, which is too old now, was sent in time."""

    item: Item


class Worker:
    """Sends what `source` delivers, each chat in order, until stopped.

    Args:
        apis: One Bot API client per sender thread.
        alerts: Says what the operator is to be told; must observe the same events as `observe`.
        on_death: Called with (thread name, error) when a thread dies of a bug; the worker is then useless.
        random: Jitter in [0, 1).
        ledger: Keeps a record of each delivery; by default none is kept.
        tracing: Makes spans; by default nobody gets to see them.
    """

    def __init__(
        self,
        source: MessageSource,
        apis: Sequence[BotApi],
        state: State,
        policy: Policy,
        rules: Rules,
        alerts: Alerts,
        *,
        observe: Observer,
        on_death: Callable[[str, BaseException], None],
        random: Callable[[], float],
        lease_clock: LeaseClock,
        ledger: Ledger | None = None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._ledger = ledger or NullLedger()
        self._tracing = tracing or untraced()
        self._apis = [self._tracing.watch(api) for api in apis]
        self._state = state
        self._rules = rules
        self._alerts = alerts
        self._observe = observe
        self._on_death = on_death
        self._lease_clock = lease_clock
        self._clock = clock
        self._wall = wall
        pacing = Pacing(rules.rates) if rules.rates else None
        self._lanes = Lanes(rules.max_pending, len(apis), pacing)
        self._settling = Settling(self._lanes, source, state, policy, self._ledger, observe, random, wall)
        self._expired: deque[Item] = deque()
        self._upkeep = Upkeep(self._lanes, source, self._settling, self._expired.append, observe)
        self._pausing = Pausing(self._lanes, observe)
        self._changed = threading.Condition()
        self._pauses_read = threading.Condition()  # its own: a wake for a sender must reach one
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._writer = self._thread("ledger", self._ledger.work)
        self._numbers = itertools.count(1)
        self._sending: dict[int, _Sending] = {}
        self._texts: deque[str] = deque(maxlen=ALERTS_KEPT)
        self._probing = False
        self._alarm = float("inf")  # until when a sender waits for something that is due by time alone
        self._asked = 0
        self._next_tick = float("-inf")
        self._fetch_again = float("-inf")
        source.on_change(self._wake)

    # Life

    def start(self) -> None:
        """Start the reader, the senders, and the thread that writes what the ledger owes."""
        self._threads = [self._thread("reader", self._read)]
        for number, api in enumerate(self._apis, 1):
            self._threads.append(self._thread(f"sender-{number}", self._send_for_ever, api))
        for thread in (*self._threads, self._writer):
            thread.start()

    def _thread(self, name: str, function: Callable[..., None], *args: object) -> threading.Thread:
        return threading.Thread(target=self._guard, args=(function, *args), name=name, daemon=True)

    def stop(self, deadline: float) -> int:
        """Stop by the deadline (monotonic seconds); returns how many deliveries were given back unsent.

        What has no send ahead of it is nak'd at once, in stream order; the send in flight may finish, and is
        cut off when the budget ends.
        """
        reserve = min(STOP_RESERVE_SECONDS, (deadline - self._clock()) / 3)
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        with self._pauses_read:
            self._pauses_read.notify_all()
        self._source.wake()
        self._source.stop_pulling(max(0.0, min(1.0, deadline - self._clock())))
        self._join(self._threads[:1], deadline)
        with self._changed:
            while (entry := self._source.next(0.0)) is not None:
                self._take_in(entry)
            free, behind = self._drain()
            self._settling.give_back(free, self._clock())
        if not self._join(self._threads[1:], deadline - reserve):
            for sending in list(self._sending.values()):
                sending.api.abort(sending.number)
            self._join(self._threads[1:], deadline - reserve / 2)
        with self._changed:
            kept, _ = self._drain()  # what the last sends put back
            # What waits behind a send that did not end stays behind it, and comes back after its lease.
            behind = [i for i in (*kept, *behind) if not self._lanes.flying(i.chat)]
            behind.sort(key=lambda i: i.sequence)
            self._settling.give_back(behind, self._clock())
            self._announce_alerts(float("inf"))
            writes = self._state.flush()
            unconfirmed = list(self._settling.unconfirmed)
        self._ledger.stop(deadline - reserve / 4)
        wait_for_futures(unconfirmed, max(0.0, deadline - self._clock()))
        wait_for_futures(writes, max(0.0, deadline - self._clock()))
        self._join([self._writer], deadline)
        for api in self._apis:
            api.close()
        return len(free) + len(behind)

    # Status

    def work(self) -> Work:
        """What waits, is held and paused now."""
        with self._changed:
            unconfirmed = len(self._settling.unconfirmed)
            return work_of(self._lanes, self._pausing.pauses, unconfirmed, self._clock(), self._wall())

    @property
    def alerts_waiting(self) -> int:
        """How many alerts wait for the operator's chat or the bot to be free."""
        return len(self._texts)

    @property
    def read_ago_seconds(self) -> float:
        """How long ago the reader was last seen at work; infinite before the first time."""
        return self._clock() - (self._next_tick - TICK_SECONDS)

    @property
    def may_send(self) -> bool:
        """Whether a send might start now, as far as JetStream and operators are concerned."""
        return self._clock() >= self._pausing.bot_until and self._source.may_send(len(self._apis))

    def read_pauses(self, timeout_seconds: float = 0.0) -> bool:
        """Have what operators have paused read and applied now; whether that was done in time."""
        with self._changed:
            number = self._pausing.ask()
        self._source.wake()
        with self._pauses_read:
            self._pauses_read.wait_for(
                lambda: self._pausing.heard(number) or self._stopping.is_set(), timeout_seconds
            )
        return self._pausing.heard(number)

    def _join(self, threads: Sequence[threading.Thread], deadline: float) -> bool:
        for thread in threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock()))
        return not any(thread.is_alive() for thread in threads)

    def _guard(self, function: Callable[..., None], *args: object) -> None:
        # The one place that catches everything: a thread that dies silently would stop the relay unseen.
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001
            name = threading.current_thread().name
            self._observe(ThreadDied(name, error))
            self._on_death(name, error)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    # The reader

    def _read(self) -> None:
        while not self._stopping.is_set():
            delivered = self._source.next(max(0.0, min(TICK_SECONDS, self._next_tick - self._clock())))
            batch = [] if delivered is None else [delivered]
            while delivered is not None and len(batch) < READ_AT_ONCE:
                delivered = self._source.next(0.0)
                if delivered is not None:
                    batch.append(delivered)
            if any(isinstance(entry, Taken) for entry in batch) and self._state.loaded:
                with self._changed:
                    self._state.leave()  # a predecessor has kept it meanwhile
                    self._fetch_again = float("-inf")
            left = self._fetch_state() if batch or self._source.may_send(len(self._apis)) else None
            with self._changed:
                reading = self._pausing.due(self._clock(), at_once=left is not None)
            pauses = None if reading is None else self._state.fetch_pauses()
            with self._changed:
                if left is not None:
                    self._adopt(left)
                if reading is not None:
                    self._pausing.adopt(pauses, reading, self._clock(), self._wall())
                for entry in batch:
                    self._take_in(entry)
                if self._clock() >= self._next_tick:
                    self._tick()
                self._ask()
                self._changed.notify()
            if reading is not None:
                with self._pauses_read:
                    self._pauses_read.notify_all()

    def _fetch_state(self) -> Left | None:
        if self._state.loaded or self._clock() < self._fetch_again:
            return None
        left = self._state.fetch()
        self._fetch_again = self._clock() + LOAD_AGAIN_SECONDS
        return left

    def _adopt(self, left: Left) -> None:
        self._state.adopt(left, self._source.ack_floor())
        for old, new in left.moved.items():
            self._lanes.migrate(old, new)
        now, wall = self._clock(), self._wall()
        for chat, until in left.holds.items():
            if until > wall and self._lanes.hold(chat, now + until - wall):
                self._observe(ChatHeld(chat, until - wall, "held since before this process"))

    def _take_in(self, entry: Entry) -> None:
        match entry:
            case Reset():
                self._lanes.reset()
                self._expired.clear()
            case Taken():
                chats = {
                    id_.sequence: self._chat(payload)
                    for id_, payload in entry.entries
                    if not self._settling.has_settled(id_)
                }
                self._upkeep.take_over(entry, chats, self._clock())
            case Missed():
                until = self._clock() + entry.within_seconds
                for id_, payload in entry.entries:
                    if not self._settling.has_settled(id_):
                        self._lanes.await_other(id_.sequence, self._chat(payload), until)
                if entry.everything:
                    self._lanes.wait_all(until)
            case StandDown():
                self._stand_down()
            case Delivery():
                self._upkeep.came_back(entry.id.sequence)
                self._take_in_delivery(entry)

    def _chat(self, payload: bytes) -> str:
        content = _read_content(payload)
        if isinstance(content, EnvelopeError):
            return UNREADABLE_LANE
        return content.chat or self._rules.default_chat

    def _stand_down(self) -> None:
        """Another connector sends from now on: give back all that has not been started."""
        free, behind = self._drain()
        self._settling.give_back(sorted((*free, *behind), key=lambda i: i.sequence), self._clock())
        self._lanes.reset()
        self._state.leave()
        self._observe(BecameStandby(len(free) + len(behind)))

    def _drain(self) -> tuple[list[Item], list[Item]]:
        """See `Lanes.drain`; what has expired and was not looked up goes with what is free."""
        free, behind = self._lanes.drain()
        free += self._expired
        self._expired.clear()
        return sorted(free, key=lambda i: i.sequence), behind

    def _take_in_delivery(self, entry: Delivery) -> None:
        content = _read_content(entry.payload)
        chat = (
            UNREADABLE_LANE
            if isinstance(content, EnvelopeError)
            else content.chat or self._rules.default_chat
        )
        subject = subject_of(entry, content, chat)
        if self._settling.settled_before(entry, subject):
            return
        self._observe(Received(subject, entry.hand_over))
        header = None if isinstance(content, EnvelopeError) else msg_id_mismatch(content, entry.headers)
        if header is not None:
            self._observe(MsgIdDiffers(subject, header))
        expires_at = self._expiry(entry, content)
        trace = self._tracing.received(entry, subject)
        item = Item(entry, chat, content, entry.leased_until, expires_at, trace=trace)
        self._lanes.add(item, self._clock())

    def _expiry(self, delivery: Delivery, content: TelegramOutbound | EnvelopeError) -> float:
        """When the message must not be sent any more, in seconds since 1970."""
        stored_at = delivery.id.stored_at_ns / 1e9
        limits = []
        if self._rules.max_age_seconds is not None:
            limits.append(stored_at + self._rules.max_age_seconds)
        stream_age = self._source.max_age_seconds()
        if stream_age is not None:
            limits.append(stored_at + stream_age - min(EXPIRY_MARGIN_SECONDS, stream_age / 10))
        own = None if isinstance(content, EnvelopeError) else expiry(content)
        if own is not None:
            limits.append(own)
        return min(limits, default=float("inf"))

    def _ask(self) -> None:
        self._asked = 0 if self._stopping.is_set() else self._lanes.wanted(self._clock())
        self._source.want(self._asked)

    def _tick(self) -> None:
        now = self._clock()
        self._next_tick = now + TICK_SECONDS
        self._upkeep.tick(now, self._lease_clock(), self._wall(), pulling=self._asked > 0)
        self._pausing.attend(self._wall(), self._source.active())
        for sending in list(self._sending.values()):
            if sending.deadline <= now:
                sending.api.abort(sending.number)
        self._announce_alerts(now)
        self._state.flush()

    def _announce_alerts(self, now: float) -> None:
        for alert in self._alerts.due(now, self._wall()):
            self._source.announce(alert.event)
            if alert.to_telegram:
                self._texts.append(alert.text)

    # The senders

    def _send_for_ever(self, api: BotApi) -> None:
        while True:
            job = self._next_job()
            match job:
                case None:
                    return
                case Item():
                    with self._tracing.within(job.trace):
                        self._deliver(job, api)
                case str():
                    self._tell_operator(job, api)
                case _Expired(item):
                    self._expire(item)
                case _Knock():
                    me = self._call(api, lambda deadline, number: api.get_me(deadline, number=number))
                    with self._changed:
                        self._probing = False
                        self._settling.conclude_probe(me, self._clock())
                        self._changed.notify_all()

    def _next_job(self) -> Item | str | _Knock | _Expired | None:
        """Wait for a message to send, an alert to tell, or `getMe` to ask; None when stopping.

        Who finds something wakes one more to look for the rest, and so on: a wake for all of many senders
        would have them queue for the lock each time.
        """
        with self._changed:
            while not self._stopping.is_set():
                now = self._clock()
                job, due = self._look_for_job(now)
                if job is not None:
                    self._changed.notify()
                    return job
                self._wait_until(due, now)
        return None

    def _look_for_job(self, now: float) -> tuple[Item | str | _Knock | _Expired | None, float | None]:
        """Something to do, or when to look again at the latest."""
        if not self._source.may_send(len(self._apis)):
            return None, None
        if self._expired:
            return _Expired(self._expired.popleft()), None
        self._pausing.await_first(now)
        if now < self._pausing.bot_until:
            return None, self._pausing.bot_until
        gate = self._lanes.gate
        if gate.probe_first:
            if now >= gate.held_until and not self._probing and not self._lanes.in_flight:
                self._probing = True
                return _Knock(), None
        elif self._texts and self._lanes.lend(self._rules.default_chat, now):
            return self._texts.popleft(), None
        else:
            item = self._lanes.take(now, self._lease_clock(), self._lease_needed())
            self._upkeep.say_released()
            if item is not None:
                return item, None
        return None, self._lanes.next_due(now)

    def _wait_until(self, due: float | None, now: float) -> None:
        """Wait to be woken; one sender alone also until the time that something is due."""
        if due is None or due >= self._alarm:
            self._changed.wait(LOOK_SECONDS)
            return
        self._alarm = due
        self._changed.wait(min(LOOK_SECONDS, max(0.0, due - now)))
        if self._alarm == due:
            self._alarm = float("inf")

    def _lease_needed(self) -> float:
        return min(SEND_SECONDS, self._source.ack_wait_seconds() / 2)

    def _deliver(self, item: Item, api: BotApi) -> None:
        started = self._clock()
        chat = item.chat  # a migration may change it meanwhile
        try:
            result = self._attempt(item, chat, api, started)
        except Exception as error:  # noqa: BLE001 - a bug over one message must not stop the others
            self._observe(AttemptCrashed(subject_of(item.delivery, item.content, chat), error))
            result = Attempt(Transient(0, f"internal error: {type(error).__name__}"))
        with self._changed:
            now = self._clock()
            self._lanes.answered(item, now)
            self._settling.conclude(item, result, chat, now - started, now)
            if not isinstance(result.disposition, Sent) or self._lanes.runs_low():
                self._ask()

    def _attempt(self, item: Item, chat: str, api: BotApi, started: float) -> Attempt:
        if isinstance(item.content, EnvelopeError):
            return Attempt(Terminal(0, str(item.content), "unreadable"))
        outgoing = Outgoing(item.delivery, item.content, chat, item.delayed)
        if item.expires_at <= self._wall():
            return Attempt(self._too_late(outgoing))

        def several_chats_err() -> bool:
            with self._changed:
                return self._lanes.gate.server_error(chat)

        def send(deadline: float, number: int) -> Attempt:
            around = Surroundings(deadline, self._stopping.wait, several_chats_err, self._rules.falls_back)
            return attempt(outgoing, api, self._ledger, around, number)

        lease_left = item.leased_until - self._lease_clock()
        return self._call(api, send, started + min(SEND_SECONDS, lease_left))

    def _expire(self, item: Item) -> None:
        if isinstance(item.content, EnvelopeError):
            outcome: Concluded | Terminal | Ambiguous = EXPIRED
        else:
            outcome = self._too_late(Outgoing(item.delivery, item.content, item.chat, item.delayed))
        with self._changed:
            self._settling.expire(item, outcome, self._clock())
            self._ask()

    def _too_late(self, outgoing: Outgoing) -> Concluded | Terminal | Ambiguous:
        """What a message comes to that is too old: it may have been sent in time, and come again."""
        known = self._ledger.settled(outgoing)
        return EXPIRED if known is None or isinstance(known, Deferred) else known

    def _call(self, api: BotApi, call: Callable[[float, int], T], deadline: float | None = None) -> T:
        """Call the Bot API so that the reader or a stop can end it; `deadline` in monotonic seconds."""
        number = next(self._numbers)
        deadline = self._clock() + SEND_SECONDS if deadline is None else deadline
        self._sending[number] = _Sending(api, number, deadline)
        try:
            return call(deadline, number)
        finally:
            self._sending.pop(number, None)

    def _tell_operator(self, text: str, api: BotApi) -> None:
        """Send an alert; it waits for flood control and follows its group, else a failure is only logged."""
        chat = self._lanes.resolve(self._rules.default_chat)
        envelope = TelegramOutbound(msg_id="alert", text=text)
        try:
            told: Disposition = self._call(
                api, lambda deadline, number: api.send(envelope, chat, deadline, number=number)
            )
        except Exception as error:  # noqa: BLE001 - an alert must not stop the relay
            told = Transient(0, f"internal error: {type(error).__name__}")
        with self._changed:
            self._lanes.return_lent(self._rules.default_chat, self._clock())
            if isinstance(told, Transient) and told.rate_limited:
                self._settling.hold_flooded(chat, told, self._clock())
                self._texts.appendleft(text)
            elif isinstance(told, Migrated) and self._settling.follow(chat, told.new_chat):
                self._texts.appendleft(text)
            elif not isinstance(told, Sent):
                self._observe(AlertFailed(why(told)))
            self._changed.notify_all()


def _read_content(payload: bytes) -> TelegramOutbound | EnvelopeError:
    try:
        return decode(payload)
    except EnvelopeError as error:
        return error
