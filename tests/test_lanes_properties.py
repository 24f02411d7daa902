"""Lanes under every fault at once, against a model of JetStream and with a hand-moved clock.

`World` is a relay without threads: it does with the real lanes, gate and settlement what `worker` does, one
step at a time, and checks every send as it starts. Hypothesis chooses the steps; then all faults end, and
what is left must drain.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from telegram_connector import lanes as lanes_module
from telegram_connector.delivery import Ack, Command, Delivery, DeliveryId, Nak, Term
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.lanes import Item, Lanes
from telegram_connector.pacing import BURST, Pacing, Rates
from telegram_connector.sandbox.flood import Flood, Limits
from telegram_connector.settled import SettledMemory
from telegram_connector.settlement import Policy, settle

THOROUGH = os.environ.get("CI") == "true"
SCHEDULES = int(os.environ.get("LANES_SCHEDULES") or (10_000 if THOROUGH else 2000))
ACK_WAIT = 60.0
LEASE_NEEDED = 30.0
POLICY = Policy(ack_wait_seconds=ACK_WAIT, max_attempts=4, backoff_seconds=30.0)
CHATS = ("a", "b", "-c", "-d")  # the minus makes groups of them
RATES = Rates(bot_per_second=3.0, chat_per_second=1.0, group_per_minute=20.0)
CHAT_LIMITS = Limits(per_chat=1.0, per_group_minute=20, per_bot=0, chat_burst=BURST)
BOT_LIMIT = Limits(per_chat=0, per_group_minute=0, per_bot=3)
OUTCOMES: tuple[Disposition, ...] = (
    Sent(1),
    Sent(1),
    Sent(1),
    Terminal(403, "blocked"),
    Transient(429, "slow down", 5.0),
    Transient(429, "slow down", 100.0),
    Transient(500, "broken"),
    Ambiguous("no answer"),
    Unavailable("no connection"),
    BotFault(401, "Unauthorized"),
    *(Migrated(chat) for chat in CHATS),
)


@dataclass
class Message:
    sequence: int
    chat: str
    size: int
    last: bool
    present: bool = True


@dataclass
class Out:
    reply: str
    due: float  # when the server hands it over again
    hand_over: int


class Server:
    """What JetStream does, as measured: redeliveries before new messages and in no order, stale handles act
    on the current delivery, nothing new while max_ack_pending are out."""

    def __init__(self, max_pending: int) -> None:
        self.max_pending = max_pending
        self.messages: list[Message] = []
        self.settled: set[int] = set()
        self.out: dict[int, Out] = {}
        self.cursor = 0
        self.epoch = 0
        self._replies = 0

    def publish(self, chat: str, size: int, last: bool) -> None:
        self.messages.append(Message(len(self.messages) + 1, chat, size, last))

    def hand_over(self, count: int, now: float, rng: random.Random) -> Iterator[Delivery]:
        again = [sequence for sequence, out in self.out.items() if out.due <= now]
        rng.shuffle(again)
        for sequence in again[:count]:
            yield self._deliver(sequence, now)
        count -= len(again)
        while count > 0 and self.cursor < len(self.messages) and len(self.out) < self.max_pending:
            message = self.messages[self.cursor]
            self.cursor += 1
            if message.present and message.sequence not in self.settled:
                yield self._deliver(message.sequence, now)
                count -= 1

    def _deliver(self, sequence: int, now: float) -> Delivery:
        message = self.messages[sequence - 1]
        self._replies += 1
        before = self.out.get(sequence)
        out = Out(f"{self.epoch}.{self._replies}", now + ACK_WAIT, before.hand_over + 1 if before else 1)
        self.out[sequence] = out
        return Delivery(
            DeliveryId("S", sequence, sequence * 1000),
            b"x" * message.size,
            {"chat": message.chat},
            out.reply,
            out.hand_over,
            now + ACK_WAIT,
            message.last,
        )

    def apply(self, delivery: Delivery, command: Command, now: float) -> None:
        out = self.out.get(delivery.id.sequence)
        if out is None or not delivery.reply.startswith(f"{self.epoch}."):
            return
        if isinstance(command, Nak):
            out.due = now + command.delay_seconds
        else:
            del self.out[delivery.id.sequence]
            self.settled.add(delivery.id.sequence)

    def extend(self, delivery: Delivery, now: float) -> bool:
        out = self.out.get(delivery.id.sequence)
        if out is None or not delivery.reply.startswith(f"{self.epoch}."):
            return False
        out.due = now + ACK_WAIT
        return True

    def vanish(self, sequence: int) -> None:
        self.messages[sequence - 1].present = False
        self.out.pop(sequence, None)

    def floor(self) -> int:
        for message in self.messages[: self.cursor]:
            if message.present and message.sequence not in self.settled:
                return message.sequence - 1
        return self.cursor

    def made_anew(self, floor: int) -> None:
        self.epoch += 1
        self.out.clear()
        self.settled = {s for s in self.settled if s <= floor}
        self.cursor = floor


class World:
    """Server, lanes, and in between what `worker` and `bridge` do; every send is checked as it starts."""

    def __init__(
        self, senders: int, max_pending: int, max_bytes: int, rng: random.Random, *, paced: bool = False
    ) -> None:
        self.rng = rng
        self.senders = senders
        self.max_bytes = max_bytes
        self.server = Server(max_pending)
        self.lanes = Lanes(max_pending, senders, Pacing(RATES) if paced else None)
        self.chats_flood = Flood(CHAT_LIMITS if paced else None)
        self.bots_flood = Flood(BOT_LIMIT if paced else None)
        self.arriving: dict[Item, str] = {}  # sends that Telegram has not counted yet, and their chats
        self.memory = SettledMemory()
        self.now = 1000.0  # monotonic
        self.true = 5000.0  # the server's time, and the lease clock's
        self.transit: list[Delivery | None] = []  # None: the consumer was made anew
        self.commands: list[tuple[Delivery, Command]] = []
        self.sending: list[Item] = []
        self.extending: tuple[float, list[Item]] | None = None
        self.attempts: dict[DeliveryId, int] = {}
        self.known_floor = 0
        self.asked = 0
        # The model: what must hold, kept apart from the lanes.
        self.moved: dict[str, str] = {}
        self.holds: dict[str, float] = {}
        self.finished: set[int] = set()
        self.bot_held_until = float("-inf")
        self.sends = 0

    # The model

    def resolve(self, chat: str) -> str:
        while chat in self.moved:
            chat = self.moved[chat]
        return chat

    def chat_of(self, sequence: int) -> str:
        return self.resolve(self.server.messages[sequence - 1].chat)

    def hold(self, chat: str, until: float) -> None:
        chat = self.resolve(chat)
        self.holds[chat] = max(self.holds.get(chat, until), until)
        self.lanes.hold(chat, until)

    def migrate(self, old: str, new: str) -> bool:
        old, new = self.resolve(old), self.resolve(new)
        known = not self.lanes.migrate(old, new)
        assert known == (old == new)
        if not known:
            self.moved[old] = new
            if old in self.holds:
                self.holds[new] = max(self.holds.get(new, float("-inf")), self.holds.pop(old))
        return not known

    def check_send(self, item: Item) -> None:
        sequence, chat = item.sequence, self.chat_of(item.sequence)
        assert item.chat == chat
        assert sequence not in self.finished, "sent again after it was settled for good"
        assert all(self.chat_of(s.sequence) != chat for s in self.sending), "two sends for one chat"
        assert self.holds.get(chat, 0.0) <= self.now, "sent while its chat is held"
        gate = self.lanes.gate
        assert gate.held_until <= self.now, "sent while the bot is held"
        assert not (gate.trying and self.sending), "two sends in a trial"
        assert item.leased_until - self.true >= LEASE_NEEDED, "sent without enough lease"
        earlier = {
            m.sequence for m in self.server.messages[: sequence - 1] if self.chat_of(m.sequence) == chat
        }
        here = {i.sequence for i in (*self.waiting(), *self.sending)}
        vanished = {m.sequence for m in self.server.messages if not m.present}
        skipped = earlier - self.finished - (vanished - here)
        assert not skipped, f"{sequence} overtook {sorted(skipped)}"

    def waiting(self) -> list[Item]:
        return [i for lane in self.lanes._lanes.values() for i in lane.waiting.values()]

    def check(self) -> None:
        lanes = self.lanes
        waiting = self.waiting()
        awaited = sum(len(lane.awaited) for lane in lanes._lanes.values())
        flying = [i for lane in lanes._lanes.values() for i in lane.in_flight]
        assert sorted(i.sequence for i in flying) == sorted(i.sequence for i in self.sending)
        assert lanes.in_flight == len(flying)
        assert lanes.outstanding == len(waiting) + awaited + len(flying)
        assert lanes._bytes == sum(len(i.delivery.payload) for i in (*waiting, *flying))
        assert lanes._blocked == {c for c, lane in lanes._lanes.items() if lane.awaited}
        assert lanes.held(self.now) == {c: t for c, t in self.holds.items() if t > self.now}
        assert lanes.gate.held_until >= self.bot_held_until
        self.bot_held_until = lanes.gate.held_until
        room = max(0, lanes.max_pending - lanes.outstanding)
        wanted = lanes.wanted(self.now)
        due_back = lanes._due_back(self.now)
        assert wanted <= max(room, due_back)
        if lanes._bytes >= self.max_bytes:
            assert wanted <= due_back
        assert len(self.server.out) <= self.server.max_pending
        assert all(
            lane.waiting or lane.awaited or lane.in_flight or lane.hold_said for lane in lanes._lanes.values()
        )
        size = len(lanes._lanes) + len(waiting) + len(self.server.messages)
        assert len(lanes._ready) <= 3 * size + 16
        assert len(lanes._timed) <= 3 * size + 16

    # Steps

    def pull(self, *, eager: bool = False) -> None:
        self.asked = self.lanes.wanted(self.now)
        count = self.asked if eager else self.asked - len(self.transit)
        deliveries = list(self.server.hand_over(count, self.true, self.rng))
        self.transit += deliveries

    def arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.transit))):
            self.take_in(self.transit.pop(0))

    def take_in(self, entry: Delivery | None) -> None:
        if entry is None:
            before = self.lanes.outstanding - self.lanes.in_flight
            assert self.lanes.reset() == before
            return
        settled = self.memory.settled_by(entry.id)
        if settled is not None:
            self.commands.append((entry, settled))
            return
        content = TelegramOutbound(msg_id="m", text="t")
        self.lanes.add(Item(entry, entry.headers["chat"], content, entry.leased_until), self.now)

    def start_send(self) -> bool:
        if len(self.sending) >= self.senders:
            return False
        gate = self.lanes.gate
        if gate.probe_first:
            if self.now < gate.held_until or self.sending:
                return False
            gate.probed() if self.rng.random() < 0.7 else gate.close(
                "getMe", fault=True, now=self.now, jitter=0.0
            )
            return False
        item = self.lanes.take(self.now, self.true, LEASE_NEEDED)
        if item is None:
            return False
        self.check_send(item)
        self.sending.append(item)
        self.sends += 1
        assert self.bots_flood.admit(1, 0, False, self.now) is None, "the bot sends too fast"
        # Telegram counts it at some moment between its start and its answer.
        self.arriving[item] = item.chat
        if self.rng.random() < 0.5:
            self.arrive_at_telegram(item)
        return True

    def arrive_at_telegram(self, item: Item) -> None:
        chat = self.arriving.pop(item, None)
        if chat is not None:
            wait = self.chats_flood.admit(1, CHATS.index(chat), chat.startswith("-"), self.now)
            assert wait is None, f"{item.sequence} came {wait} s too early for its chat"

    def answer(self, index: int, disposition: Disposition) -> None:
        item = self.sending.pop(index % len(self.sending))
        delivery, gate = item.delivery, self.lanes.gate
        self.arrive_at_telegram(item)
        self.lanes.answered(item, self.now)
        if isinstance(disposition, Migrated):
            if self.migrate(item.chat, disposition.new_chat):
                self.lanes.put_back(item)
                return
            disposition = Transient(400, "migrates in a circle")
        if isinstance(disposition, Sent):
            gate.accepted(self.now)
        elif isinstance(disposition, Unavailable | BotFault):
            fault = isinstance(disposition, BotFault)
            gate.close("down", fault=fault, now=self.now, jitter=self.rng.random())
        attempts = self.attempts.get(delivery.id, 0)
        settlement = settle(
            disposition,
            attempts=attempts,
            policy=POLICY,
            bot_wait_seconds=max(0.0, gate.held_until - self.now),
            last_hand_over=delivery.last,
            random=self.rng.random,
        )
        self.attempts[delivery.id] = attempts + settlement.costs_attempt
        if settlement.hold_seconds > 0:
            until = self.now + settlement.hold_seconds
            self.hold(item.chat, until)
            if isinstance(disposition, Transient) and disposition.rate_limited:
                self.lanes.flooded(item.chat, until, self.now)
        match settlement.command:
            case Ack() | Term() as command:
                self.memory.remember(delivery.id, command, self.now)
                self.finished.add(item.sequence)
                self.lanes.done(item)
                self.commands.append((delivery, command))
            case Nak() as command:
                self.lanes.returned(item, self.now + command.delay_seconds)
                self.commands.append((delivery, command))
            case None:
                self.lanes.put_back(item)

    def confirm(self, index: int) -> None:
        """One settlement, in any order, reaches the server; a nak only within the lease."""
        delivery, command = self.commands.pop(index % len(self.commands))
        if not isinstance(command, Nak) or self.true < delivery.leased_until:
            self.server.apply(delivery, command, self.true)

    def tick(self) -> None:
        self.lanes.lapse(self.now, self.true)
        if self.extending is None:
            items = self.lanes.to_extend(self.true, ACK_WAIT * 2 / 3)
            if items:
                self.extending = (self.true, items)
        for sequence, _ in self.lanes.settled_below(self.known_floor):
            assert sequence in self.finished or not self.server.messages[sequence - 1].present
        if self.asked:
            for sequence, chat in self.lanes.overdue(self.now):
                if not self.server.messages[sequence - 1].present:
                    assert self.lanes.gone(sequence, chat)

    def extension(self, how: str) -> None:
        """The one under way is confirmed, or done but not confirmed, or lost."""
        assert self.extending is not None
        asked_at, items = self.extending
        self.extending = None
        done = how != "lost" and [self.server.extend(i.delivery, self.true) for i in items][-1]
        if done and how == "confirmed":
            self.lanes.extended(items, asked_at + ACK_WAIT)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.true += seconds

    def drain(self) -> None:
        """No more faults: everything must be sent within a time that the holds and waits explain."""
        for _ in range(4000):
            self.known_floor = self.server.floor()
            self.tick()
            if self.extending is not None:
                self.extension("confirmed")
            self.pull()
            self.arrive(len(self.transit))
            busy = True
            while busy:
                busy = self.start_send()
                if self.sending:
                    self.answer(0, Sent(1))
                    busy = True
                while self.commands:
                    self.confirm(0)
                self.check()
            if self.is_drained():
                break
            due = self.lanes.next_due(self.now)
            self.advance(min(max(0.01, due - self.now), 5.0) if due is not None else 0.5)
        assert self.is_drained(), f"{self.lanes.outstanding} are stuck at {self.now}"
        self.advance(20 * 86_400.0)
        self.lanes.next_due(self.now)
        lanes = self.lanes
        assert (lanes._lanes, lanes._blocked, lanes._flying, lanes._timed) == ({}, set(), set(), [])
        assert lanes.take(self.now, self.true, 0.0) is None
        assert lanes._ready == []
        unsent = {m.sequence for m in self.server.messages if m.present} - self.finished
        assert not unsent, "lost"

    def is_drained(self) -> bool:
        server = self.server
        left = {m.sequence for m in server.messages if m.present} - server.settled
        return not (left or self.lanes.outstanding or self.transit or self.sending)

    # Faults

    def hasten(self, index: int) -> None:
        """The server hands something over again although it is out."""
        if self.server.out:
            list(self.server.out.values())[index % len(self.server.out)].due = self.true

    def vanish(self, index: int) -> None:
        """The stream deletes a message: too old, or purged."""
        if self.server.messages:
            self.server.vanish(index % len(self.server.messages) + 1)

    def make_consumer_anew(self) -> None:
        self.server.made_anew(self.known_floor)
        self.transit.append(None)

    def hear_floor(self) -> None:
        self.known_floor = self.server.floor()

    def freeze(self, seconds: float) -> None:
        """The machine sleeps: only the server's time goes on."""
        self.true += seconds


WORLDS = {
    "senders": st.integers(1, 8),
    "paced": st.booleans(),
    "max_pending": st.sampled_from((2, 3, 5, 12, 40)),
    "max_bytes": st.sampled_from((12, 10_000)),
}
INDEX = st.integers(0, 30)
SECONDS = st.sampled_from((0.1, 0.5, 1.0, 2.5, 6.0, 31.0, 61.0))


class LanesUnderFaults(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()

    @initialize(**WORLDS, seed=st.integers(0, 2**16))
    def begin(self, senders: int, paced: bool, max_pending: int, max_bytes: int, seed: int) -> None:
        self.patch.setattr(lanes_module, "MAX_BYTES", max_bytes)
        self.world = World(senders, max_pending, max_bytes, random.Random(seed), paced=paced)

    @rule(chats=st.lists(st.sampled_from(CHATS), min_size=1, max_size=6), last=st.booleans())
    def publish(self, chats: list[str], last: bool) -> None:
        for number, chat in enumerate(chats):
            self.world.server.publish(chat, 1 + number, last)

    @rule(eager=st.booleans(), count=INDEX)
    def read(self, eager: bool, count: int) -> None:
        self.world.pull(eager=eager)
        self.world.arrive(count)

    @rule()
    def send(self) -> None:
        self.world.start_send()

    @precondition(lambda self: self.world.sending)
    @rule(index=INDEX, disposition=st.sampled_from(OUTCOMES))
    def answer(self, index: int, disposition: Disposition) -> None:
        self.world.answer(index, disposition)

    @precondition(lambda self: self.world.commands)
    @rule(index=INDEX)
    def confirm(self, index: int) -> None:
        self.world.confirm(index)

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.world.tick()

    @precondition(lambda self: self.world.extending)
    @rule(how=st.sampled_from(("confirmed", "done", "lost")))
    def extension(self, how: str) -> None:
        self.world.extension(how)

    @rule(chat=st.sampled_from(CHATS), seconds=st.sampled_from((-1.0, 3.0, 70.0)))
    def hold(self, chat: str, seconds: float) -> None:
        self.world.hold(chat, self.world.now + seconds)

    @rule(old=st.sampled_from(CHATS), new=st.sampled_from(CHATS))
    def learn_of_a_migration(self, old: str, new: str) -> None:
        self.world.migrate(old, new)

    @rule(index=INDEX, what=st.sampled_from(("hasten", "vanish")))
    def disturb(self, index: int, what: str) -> None:
        getattr(self.world, what)(index)

    @rule(what=st.sampled_from(("make_consumer_anew", "hear_floor")))
    def consumer(self, what: str) -> None:
        getattr(self.world, what)()

    @rule(seconds=SECONDS)
    def freeze(self, seconds: float) -> None:
        self.world.freeze(seconds)

    @invariant()
    def holds_true(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        # Also run after a failed step, which is the one to report.
        try:
            if sys.exc_info()[0] is None and hasattr(self, "world"):
                self.world.drain()
        finally:
            self.patch.undo()


TestLanesUnderFaults = pytest.mark.timeout(600)(LanesUnderFaults.TestCase)
TestLanesUnderFaults.settings = settings(
    max_examples=3000 if THOROUGH else 400,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


# Hypothesis shrinks what it finds; plain seeds get through many more and longer schedules in the same time.


def run_schedule(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """One random schedule of some 150 steps and its drain; returns how many sends it started."""
    rng = random.Random(seed)
    max_bytes = rng.choice((12, 10_000, 10_000))
    monkeypatch.setattr(lanes_module, "MAX_BYTES", max_bytes)
    most, paced = rng.choice((2, 3, 5, 12, 40)), rng.random() < 0.5
    world = World(rng.randint(1, 8), most, max_bytes, rng, paced=paced)
    chats = CHATS[: rng.randint(1, len(CHATS))]
    faults = rng.choice((0.05, 0.3))
    for _ in range(rng.randint(20, 150)):
        calm = rng.random() > faults
        step = rng.randrange(8)
        if step == 0:
            for _ in range(rng.randint(1, 6)):
                world.server.publish(rng.choice(chats), rng.randint(1, 6), rng.random() < 0.1)
        elif step == 1:
            world.pull(eager=not calm)
            world.arrive(100 if calm else rng.randint(0, 3))
        elif step in (2, 3):
            world.start_send()
        elif step == 4 and world.sending:
            world.answer(rng.randrange(4), Sent(1) if calm else rng.choice(OUTCOMES))
        elif step == 5 and world.commands:
            world.confirm(0 if calm else rng.randrange(30))
        elif step == 6:
            world.advance(rng.choice((0.1, 0.5, 1.0, 6.0)) if calm else rng.choice((31.0, 61.0)))
            world.tick()
            if world.extending is not None and rng.random() < 0.8:
                world.extension("confirmed" if calm else rng.choice(("done", "lost")))
        elif not calm:
            fault = rng.randrange(7)
            if fault == 0:
                world.hold(rng.choice(chats), world.now + rng.choice((3.0, 70.0)))
            elif fault == 1:
                world.migrate(rng.choice(chats), rng.choice(chats))
            elif fault == 2:
                world.hasten(rng.randrange(30))
            elif fault == 3:
                world.vanish(rng.randrange(30))
            elif fault == 4:
                world.make_consumer_anew()
            elif fault == 5:
                world.freeze(rng.choice((2.0, 31.0, 61.0)))
            else:
                world.hear_floor()
        world.check()
    world.drain()
    return world.sends


def test_order_and_one_at_a_time_are_never_broken_in_many_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = 0
    for seed in range(SCHEDULES):
        try:
            sends += run_schedule(seed, monkeypatch)
        except Exception as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
    assert sends > 10 * SCHEDULES, "the schedules hardly send anything: they prove nothing"
