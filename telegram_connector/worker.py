"""The threads: one reads deliveries into the lanes and keeps their leases, the others send.

The one lock around the lanes is here. Nothing is sent or waited for while it is held.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass, replace

from telegram_connector.attempt import Attempt, BotApi, Surroundings, attempt
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Ack, Delivery, MessageSource, Nak, Reset, Term
from telegram_connector.disposition import (
    BotFault,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound, decode, msg_id_mismatch
from telegram_connector.errors import EnvelopeError
from telegram_connector.events import (
    AlreadySent,
    AttemptCrashed,
    Attempted,
    BotHeld,
    BotReleased,
    ChatHeld,
    ChatMigrated,
    ChatReleased,
    LeaseLapsed,
    MsgIdDiffers,
    NotComingBack,
    Observer,
    Received,
    Saturated,
    Subject,
    ThreadDied,
)
from telegram_connector.lanes import Item, Lanes
from telegram_connector.settled import SettledMemory
from telegram_connector.settlement import Policy, Settlement, settle
from telegram_connector.state import LOAD_AGAIN_SECONDS, Left, State

TICK_SECONDS = 0.5
READ_AT_ONCE = 64
SEND_SECONDS = 36.0  # connecting (5 s), reading (30 s) and a little: the longest a send can take
EXTEND_BELOW = 2 / 3  # of ack_wait
SATURATED = 0.8
SATURATION_OVER = 0.7
GIVE_UP_AWAITING_SECONDS = 60.0  # beyond ack_wait: somebody else has it
GIVE_BACK_GAP_SECONDS = 0.1
STOP_RESERVE_SECONDS = 1.5  # of the drain budget, kept for settling what a cut-off send leaves
UNREADABLE_LANE = ""


@dataclass(eq=False)
class _Sending:
    api: BotApi
    number: int
    deadline: float


class Worker:
    """Sends what `source` delivers, each chat in order, until stopped.

    Args:
        apis: One Bot API client per sender thread.
        default_chat: Where envelopes without a chat go.
        on_death: Called with (thread name, error) when a thread dies of a bug; the worker is then useless.
        random: Jitter in [0, 1).
    """

    def __init__(
        self,
        source: MessageSource,
        apis: Sequence[BotApi],
        state: State,
        policy: Policy,
        *,
        default_chat: str,
        max_pending: int,
        observe: Observer,
        on_death: Callable[[str, BaseException], None],
        random: Callable[[], float],
        lease_clock: LeaseClock,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._apis = apis
        self._state = state
        self._policy = policy
        self._default_chat = default_chat
        self._observe = observe
        self._on_death = on_death
        self._random = random
        self._lease_clock = lease_clock
        self._clock = clock
        self._wall = wall
        self._lanes = Lanes(max_pending, len(apis))
        self._settled = SettledMemory()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count(1)
        self._sending: dict[int, _Sending] = {}
        self._probing = False
        self._asked = 0
        self._next_tick = float("-inf")
        self._fetch_again = float("-inf")
        self._extending: tuple[Future[float | None], list[Item]] | None = None
        self._looking_up: list[tuple[Future[bool | None], int, str]] = []
        self._unsettled: set[Future[bool]] = set()
        self._saturated = False
        source.on_change(self._wake)

    # Life

    def start(self) -> None:
        """Start the reader and the senders."""
        self._threads = [threading.Thread(target=self._guard, args=(self._read,), name="reader", daemon=True)]
        for number, api in enumerate(self._apis, 1):
            self._threads.append(
                threading.Thread(
                    target=self._guard, args=(self._send_for_ever, api), name=f"sender-{number}", daemon=True
                )
            )
        for thread in self._threads:
            thread.start()

    def stop(self, deadline: float) -> int:
        """Stop by the deadline (monotonic seconds); returns how many deliveries were given back unsent.

        What has no send ahead of it is nak'd at once, in stream order; the send in flight may finish, and is
        cut off when the budget ends.
        """
        reserve = min(STOP_RESERVE_SECONDS, (deadline - self._clock()) / 3)
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        self._source.wake()
        self._source.stop_pulling(max(0.0, min(1.0, deadline - self._clock())))
        self._join(self._threads[:1], deadline)
        self._drain_queue()
        with self._changed:
            free, behind = self._lanes.drain()
        self._give_back(free)
        if not self._join(self._threads[1:], deadline - reserve):
            for sending in list(self._sending.values()):
                sending.api.abort(sending.number)
            self._join(self._threads[1:], deadline - reserve / 2)
        with self._changed:
            kept, _ = self._lanes.drain()  # what the last sends put back
            # What waits behind a send that did not end stays behind it, and comes back after its lease.
            behind = [i for i in (*kept, *behind) if not self._lanes.flying(i.chat)]
            behind.sort(key=lambda i: i.sequence)
        self._give_back(behind)
        with self._changed:
            writes = self._state.flush()
            unsettled = list(self._unsettled)
        wait_for_futures(unsettled, max(0.0, deadline - self._clock()))
        wait_for_futures(writes, max(0.0, deadline - self._clock()))
        for api in self._apis:
            api.close()
        return len(free) + len(behind)

    def _give_back(self, items: list[Item]) -> None:
        """Nak in stream order; what waits for a hold, or for what was nak'd before it, not before that."""
        now, ack_wait = self._clock(), self._source.ack_wait_seconds()
        for item in items:
            with self._changed:
                delay = self._lanes.due_in(item, now)
            # A little later than what it waits for, whose delay was counted from a moment before.
            self._track(
                self._source.nak(item.delivery, min(delay + GIVE_BACK_GAP_SECONDS, ack_wait) if delay else 0)
            )

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
            self._changed.notify_all()

    # The reader

    def _read(self) -> None:
        while not self._stopping.is_set():
            delivered = self._source.next(max(0.0, min(TICK_SECONDS, self._next_tick - self._clock())))
            batch = [] if delivered is None else [delivered]
            while delivered is not None and len(batch) < READ_AT_ONCE:
                delivered = self._source.next(0.0)
                if delivered is not None:
                    batch.append(delivered)
            left = self._fetch_state() if batch else None
            with self._changed:
                if left is not None:
                    self._adopt(left)
                for entry in batch:
                    self._take_in(entry)
                if self._clock() >= self._next_tick:
                    self._tick()
                self._ask()
                self._changed.notify_all()

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

    def _drain_queue(self) -> None:
        with self._changed:
            while (entry := self._source.next(0.0)) is not None:
                self._take_in(entry)

    def _take_in(self, entry: Delivery | Reset) -> None:
        if isinstance(entry, Reset):
            self._lanes.reset()
            return
        content = _read_content(entry)
        subject = self._subject(entry, content)
        settled = self._settled.settled_by(entry.id)
        if settled is not None:
            self._observe(AlreadySent(subject))
            self._track(self._tell(entry, settled))
            return
        self._observe(Received(subject, entry.hand_over))
        if not isinstance(content, EnvelopeError):
            header = msg_id_mismatch(content, entry.headers)
            if header is not None:
                self._observe(MsgIdDiffers(subject, header))
        chat = UNREADABLE_LANE if isinstance(content, EnvelopeError) else content.chat or self._default_chat
        self._lanes.add(Item(entry, chat, content, entry.leased_until), self._clock())

    def _ask(self) -> None:
        self._asked = 0 if self._stopping.is_set() else self._lanes.wanted(self._clock())
        self._source.want(self._asked)

    def _tick(self) -> None:
        now, lease_now = self._clock(), self._lease_clock()
        self._next_tick = now + TICK_SECONDS
        lapsed = self._lanes.lapse(now, lease_now)
        if lapsed:
            self._observe(LeaseLapsed(len(lapsed), lapsed[0]))
        self._keep_leases(lease_now)
        self._look_up_awaited(now)
        for sending in list(self._sending.values()):
            if sending.deadline <= now:
                sending.api.abort(sending.number)
        self._report_saturation()
        self._say_released()
        self._state.flush()

    def _keep_leases(self, lease_now: float) -> None:
        if self._extending is not None:
            future, items = self._extending
            if not future.done():
                return
            self._extending = None
            until = future.result() if future.exception() is None else None
            if until is not None:
                self._lanes.extended(items, until)
        items = self._lanes.to_extend(lease_now, self._source.ack_wait_seconds() * EXTEND_BELOW)
        if items:
            self._extending = (self._source.extend([i.delivery for i in items]), items)

    def _look_up_awaited(self, now: float) -> None:
        for sequence, chat in self._lanes.settled_below(self._source.ack_floor()):
            self._observe(NotComingBack(sequence, chat, "settled"))
        waiting = []
        for future, sequence, chat in self._looking_up:
            if not future.done():
                waiting.append((future, sequence, chat))
                continue
            present = future.result() if future.exception() is None else None
            late = self._lanes.overdue_for(sequence, chat, now)
            if present is False:
                reason = "no longer in the stream"
            elif present and late > self._source.ack_wait_seconds() + GIVE_UP_AWAITING_SECONDS:
                reason = "handed to somebody else"
            else:
                continue
            if self._lanes.gone(sequence, chat):
                self._observe(NotComingBack(sequence, chat, reason))
        # Without a live pull nothing can come, so nothing is late.
        if self._asked and not waiting:
            waiting = [(self._source.present(s), s, c) for s, c in self._lanes.overdue(now)[:READ_AT_ONCE]]
        self._looking_up = waiting

    def _report_saturation(self) -> None:
        share = self._lanes.outstanding / self._lanes.max_pending
        if share >= SATURATED and not self._saturated:
            self._saturated = True
            self._observe(Saturated(self._lanes.outstanding, self._lanes.max_pending, self._lanes.fullest(5)))
        elif share < SATURATION_OVER:
            self._saturated = False

    def _say_released(self) -> None:
        for chat in self._lanes.released():
            self._observe(ChatReleased(chat))

    # The senders

    def _send_for_ever(self, api: BotApi) -> None:
        while True:
            item = self._next_item(api)
            if item is None:
                return
            started = self._clock()
            number = next(self._numbers)
            chat = item.chat  # a migration may change it meanwhile
            try:
                result = self._attempt(item, api, number, started)
            except Exception as error:  # noqa: BLE001 - a bug over one message must not stop the others
                self._observe(AttemptCrashed(self._subject(item.delivery, item.content), error))
                result = Attempt(Transient(0, f"internal error: {type(error).__name__}"))
            finally:
                self._sending.pop(number, None)
            with self._changed:
                self._conclude(item, result, started, chat)
                self._ask()
                self._changed.notify_all()

    def _next_item(self, api: BotApi) -> Item | None:
        """Wait for the next message to send; None when stopping. Knocks with `getMe` in between."""
        while True:
            with self._changed:
                probe = False
                while not probe:
                    if self._stopping.is_set():
                        return None
                    now = self._clock()
                    due = None
                    if self._source.may_send(len(self._apis)):
                        gate = self._lanes.gate
                        probe = (
                            gate.probe_first
                            and now >= gate.held_until
                            and not self._probing
                            and not self._lanes.in_flight
                        )
                        if not probe and not gate.probe_first:
                            item = self._lanes.take(now, self._lease_clock(), self._lease_needed())
                            self._say_released()
                            if item is not None:
                                return item
                        due = self._lanes.next_due(now)
                    if not probe:
                        self._changed.wait(1.0 if due is None else min(1.0, max(0.0, due - now)))
                self._probing = True
            me = self._knock(api)
            with self._changed:
                self._probing = False
                self._conclude_probe(me)
                self._changed.notify_all()

    def _knock(self, api: BotApi) -> Disposition:
        number = next(self._numbers)
        deadline = self._clock() + SEND_SECONDS
        self._sending[number] = _Sending(api, number, deadline)
        try:
            return api.get_me(deadline, number=number)
        finally:
            self._sending.pop(number, None)

    def _lease_needed(self) -> float:
        return min(SEND_SECONDS, self._source.ack_wait_seconds() / 2)

    def _attempt(self, item: Item, api: BotApi, number: int, started: float) -> Attempt:
        lease_left = item.leased_until - self._lease_clock()
        deadline = started + min(SEND_SECONDS, lease_left)
        self._sending[number] = _Sending(api, number, deadline)

        def several_chats_err() -> bool:
            with self._changed:
                return self._lanes.gate.server_error(item.chat)

        around = Surroundings(deadline, self._stopping.wait, several_chats_err)
        return attempt(item.content, item.chat, api, around, number)

    # What an attempt leads to; under the lock

    def _conclude(self, item: Item, result: Attempt, started: float, chat: str) -> None:
        now = self._clock()
        delivery = item.delivery
        disposition = result.disposition
        if isinstance(disposition, Migrated):
            if self._follow(item, disposition, chat):
                self._report(
                    item, Settlement(disposition, None), self._state.attempts(delivery.id), now - started
                )
                return
            disposition = Transient(400, f"migrates in a circle: {disposition.description}")
        settlement = settle(
            disposition,
            attempts=self._state.attempts(delivery.id),
            policy=replace(self._policy, ack_wait_seconds=self._source.ack_wait_seconds()),
            bot_wait_seconds=self._gate(item, disposition, result.outage, now),
            last_hand_over=delivery.last,
            random=self._random,
        )
        attempts = (
            self._state.failed(delivery.id) if settlement.costs_attempt else self._state.attempts(delivery.id)
        )
        self._hold(item, settlement, now)
        match settlement.command:
            case Ack() | Term() as command:
                self._settled.remember(delivery.id, command, now)
                self._state.settled(delivery.id)
                self._lanes.done(item)
                self._track(self._tell(delivery, command))
            case Nak() as command:
                self._lanes.returned(item, now + command.delay_seconds)
                self._track(self._source.nak(delivery, command.delay_seconds))
            case None:
                self._lanes.put_back(item)
        self._report(item, settlement, attempts, now - started)

    def _follow(self, item: Item, migrated: Migrated, old: str) -> bool:
        """Let the message that was sent to `old` go first in its chat's new lane; False for a circle."""
        if self._lanes.migrate(old, migrated.new_chat):
            self._state.moved(old, migrated.new_chat)
            self._observe(ChatMigrated(old, migrated.new_chat))
        elif self._lanes.resolve(old) == old:
            return False
        self._lanes.put_back(item)
        return True

    def _gate(self, item: Item, disposition: Disposition, outage: str, now: float) -> float:
        """Let the bot's gate hear of it; returns for how many seconds the bot is held."""
        gate = self._lanes.gate
        if isinstance(disposition, Sent):
            gate_over = gate.accepted(now)
            if gate_over is not None:
                self._observe(BotReleased(*gate_over))
        elif isinstance(disposition, Unavailable | BotFault) or outage:
            fault = isinstance(disposition, BotFault)
            return self._close_gate(outage or _why(disposition), fault, now)
        elif isinstance(disposition, Terminal) or (
            isinstance(disposition, Transient) and disposition.status_code < 500
        ):
            gate.answered()
        return max(0.0, gate.held_until - now)

    def _close_gate(self, reason: str, fault: bool, now: float) -> float:
        gate = self._lanes.gate
        held_until = gate.held_until
        seconds = gate.close(reason, fault=fault, now=now, jitter=self._random())
        if gate.held_until > held_until:
            self._observe(BotHeld(reason, seconds, gate.fault))
        return seconds

    def _conclude_probe(self, me: Disposition) -> None:
        if isinstance(me, Sent):
            self._lanes.gate.probed()
        else:
            self._close_gate(f"getMe: {_why(me)}", isinstance(me, BotFault), self._clock())

    def _hold(self, item: Item, settlement: Settlement, now: float) -> None:
        if settlement.hold_seconds <= 0:
            return
        until = now + settlement.hold_seconds
        reason = _why(settlement.disposition)
        if self._lanes.hold(item.chat, until):
            wall = self._wall()
            self._state.held(item.chat, wall + settlement.hold_seconds, wall)
            self._observe(ChatHeld(item.chat, settlement.hold_seconds, reason))
        rate_limited = isinstance(settlement.disposition, Transient) and settlement.disposition.rate_limited
        if rate_limited and self._lanes.gate.flooded(item.chat, until, now):
            gate = self._lanes.gate
            self._observe(BotHeld(gate.reason, gate.held_until - now, False))

    def _tell(self, delivery: Delivery, command: Ack | Term) -> Future[bool]:
        match command:
            case Ack():
                return self._source.ack(delivery)
            case Term():
                return self._source.term(delivery, command.reason)

    def _track(self, future: Future[bool]) -> None:
        self._unsettled.add(future)
        future.add_done_callback(self._unsettled.discard)

    def _report(self, item: Item, settlement: Settlement, attempts: int, seconds: float) -> None:
        command = settlement.command
        self._observe(
            Attempted(
                self._subject(item.delivery, item.content, item.chat),
                settlement.disposition,
                attempts,
                seconds * 1000,
                {Ack: "ack", Nak: "nak", Term: "term"}.get(type(command), "kept"),
                command.delay_seconds if isinstance(command, Nak) else settlement.hold_seconds or None,
            )
        )

    def _subject(
        self, delivery: Delivery, content: TelegramOutbound | EnvelopeError, chat: str | None = None
    ) -> Subject:
        if isinstance(content, EnvelopeError):
            return Subject(delivery.headers.get("Nats-Msg-Id", ""), "", None, delivery.id.sequence)
        return Subject(
            content.msg_id, chat or content.chat or self._default_chat, content.kind, delivery.id.sequence
        )


def _read_content(delivery: Delivery) -> TelegramOutbound | EnvelopeError:
    try:
        return decode(delivery.payload)
    except EnvelopeError as error:
        return error


def _why(disposition: Disposition) -> str:
    description = getattr(disposition, "description", "")
    return description or type(disposition).__name__
