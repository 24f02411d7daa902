"""The ordered queues, one per chat. Pure data: no threads, no I/O, and time is an argument.

Three kinds of time go in: `now` (monotonic seconds) for holds and waits, `lease_now` (`LeaseClock` seconds)
for leases. `worker` holds the one lock around all of it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from telegram_connector.delivery import Delivery, DeliveryId
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError
from telegram_connector.gate import BotGate
from telegram_connector.pacing import Pacing

MAX_BYTES = 64 * 1024 * 1024  # payload bytes held in memory
READY_PER_SENDER = 8  # deliveries read ahead per sender, and
READY_BESIDES = 24  # some more: each pull costs about as much as a settlement. Asked for when half are gone
BATCH_LIMIT = 256  # one pull's size while everything read lands behind held lanes
LOOK_UP_AFTER_SECONDS = 2.0  # a message that is due comes within milliseconds under a live pull
LOOK_UP_EVERY_SECONDS = 5.0
LOOK_UP_AT_ONCE = 64
DELAYED_SECONDS = 10.0  # what pacing keeps waiting for longer is said to be delayed

T = TypeVar("T")


class BySequence(dict[int, T], Generic[T]):
    """A dict keyed by stream sequence that knows its smallest key."""

    def __init__(self) -> None:
        super().__init__()
        self._order: list[int] = []

    def __setitem__(self, sequence: int, value: T) -> None:
        if sequence not in self:
            if len(self._order) > 2 * len(self) + 16:  # what was taken out and is not at the top yet
                self._order = sorted(self)
            heapq.heappush(self._order, sequence)
        super().__setitem__(sequence, value)

    def first(self) -> int | None:
        """The smallest sequence, None when empty."""
        while self._order and self._order[0] not in self:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None


@dataclass(eq=False)
class Item:
    """A delivery in its lane; `delivery` is replaced when the message is handed over again."""

    delivery: Delivery
    chat: str
    content: TelegramOutbound | EnvelopeError
    leased_until: float
    expires_at: float = float("inf")  # seconds since 1970
    delayed: bool = False  # pacing has kept it waiting for long
    trace: object = None  # what `tracing` gave for it

    @property
    def sequence(self) -> int:
        return self.delivery.id.sequence


@dataclass
class _Awaited:
    due: float
    look_up_at: float


@dataclass
class _Lane:
    waiting: BySequence[Item] = field(default_factory=BySequence)
    awaited: BySequence[_Awaited] = field(default_factory=BySequence)
    in_flight: list[Item] = field(default_factory=list)  # more than one only after lanes have merged
    hold_until: float = float("-inf")
    paused_until: float = float("-inf")
    hold_said: bool = False
    lent: bool = False
    # What stands for the lane in `_timed` and `_ready`, so that a touch does not enter it once more.
    timed_for: float | None = None
    ready_for: int | None = None

    @property
    def held_until(self) -> float:
        """Until when nothing is sent, for whatever reason."""
        return max(self.hold_until, self.paused_until)

    @property
    def paused(self) -> bool:
        return self.paused_until != float("-inf")

    @property
    def idle(self) -> bool:
        """Whether there is nothing to keep the lane for."""
        return not (self.waiting or self.awaited or self.in_flight or self.lent or self.paused)

    def head(self) -> int | None:
        """The sequence that may be sent next, holds and leases aside; None for none."""
        first = self.waiting.first()
        if first is None or self.in_flight or self.lent:
            return None
        awaited = self.awaited.first()
        return first if awaited is None or first < awaited else None


class Lanes:
    """All lanes, and the bot's gate before them.

    Args:
        max_pending: How many messages may be out at once: waiting, in flight and nak'd.
        senders: How many sends may be in flight at once; sizes the read-ahead.
        pacing: Keeps sends apart before Telegram refuses them; None where it alone decides.
    """

    def __init__(self, max_pending: int, senders: int = 1, pacing: Pacing | None = None) -> None:
        self.gate = BotGate()
        self._pacing = pacing
        self._not_delayed: list[tuple[float, int, Item]] = []  # when to look at each, and which came first
        self._numbers = itertools.count()
        self._delayed: set[DeliveryId] = set()
        self.max_pending = max_pending
        self._ready_limit = READY_BESIDES + READY_PER_SENDER * senders
        # One sender serves one chat as well as any; several need other chats, however deep the first is.
        self._ready_per_chat = self._ready_limit // senders
        self._surplus = 0
        self._lanes: dict[str, _Lane] = {}
        self._blocked: set[str] = set()  # chats whose lane awaits something
        self._moved: dict[str, str] = {}
        self._ready: list[tuple[int, str]] = []
        self._timed: list[tuple[float, str]] = []
        self._released: list[str] = []
        self._all_wait_until = float("-inf")
        self._others_until = float("-inf")
        self._flying: set[str] = set()  # chats with a send in flight
        self._in_flight = 0
        self._waiting = 0
        self._awaited = 0
        self._bytes = 0
        self._fruitless = 0  # how many of the last deliveries in a row could not be sent at once

    # Taking in and sending

    def add(self, item: Item, now: float) -> None:
        """Take in a delivery; one of a sequence already here replaces its handle."""
        item.chat = self.resolve(item.chat)
        lane = self._lanes.setdefault(item.chat, _Lane())
        sequence = item.sequence
        for sending in lane.in_flight:
            if sending.delivery.id == item.delivery.id:
                sending.delivery = item.delivery
                sending.leased_until = item.leased_until
                return
        self._stop_awaiting(item.chat, lane, sequence)
        if sequence in lane.waiting:
            self._forget_waiting(lane, sequence)
        self._put(lane, item)
        if self._pacing is not None:
            self._look_for_delay(item, now + DELAYED_SECONDS)
        first = lane.head() == sequence
        opens_at = self._opens_at(item.chat, lane)
        self._fruitless = 0 if first and opens_at <= now else self._fruitless + 1
        if first:
            self._touch(item.chat, lane)

    def take(self, now: float, lease_now: float, lease_needed: float) -> Item | None:
        """The oldest message that may be sent now, which is then in flight.

        Args:
            lease_needed: Seconds of lease that must be left; a head with less waits for its extension.
        """
        self._advance(now)
        if now < self._all_open_at() or (self.gate.trying and self._flying):
            return None
        while self._ready:
            sequence, chat = heapq.heappop(self._ready)
            lane = self._lanes.get(chat)
            if lane is not None and lane.ready_for == sequence:
                lane.ready_for = None
            if lane is None or lane.head() != sequence:
                continue  # a stale entry: whatever made it stale has entered the lane anew
            if self._opens_at(chat, lane) > now:
                self._touch(chat, lane)
                continue
            item = lane.waiting[sequence]
            if item.leased_until - lease_now < lease_needed:
                continue  # `extended` or `lapse` enters it anew
            del lane.waiting[sequence]
            self._waiting -= 1
            lane.in_flight.append(item)
            self._flying.add(chat)
            self._in_flight += 1
            if self._pacing is not None:
                self._pacing.started(chat, now)
            return item
        return None

    def answered(self, item: Item, now: float) -> None:
        """The message in flight has been answered, or never will be: its chat's pace counts from here."""
        if self._pacing is not None:
            self._pacing.ended(item.chat, now)

    def done(self, item: Item) -> None:
        """The message in flight is settled for good; its lane goes on."""
        self._delayed.discard(item.delivery.id)
        self._bytes -= len(item.delivery.payload)
        self._touch(item.chat, self._land(item))

    def returned(self, item: Item, due: float) -> None:
        """The message in flight was given back and is handed over again at `due` or later: it is awaited."""
        self._bytes -= len(item.delivery.payload)
        lane = self._land(item)
        # A sequence that waits here already is of a stream made anew: the one in flight is no more.
        if item.sequence not in lane.waiting:
            self._await(item.chat, lane, item.sequence, due)
        self._touch(item.chat, lane)

    def put_back(self, item: Item) -> None:
        """The message in flight stays here and goes first again in its chat's lane."""
        self._bytes -= len(item.delivery.payload)
        self._touch(item.chat, self._land(item))
        item.chat = self.resolve(item.chat)
        lane = self._lanes.setdefault(item.chat, _Lane())
        if item.sequence not in lane.waiting:  # as in `returned`
            self._put(lane, item)
        self._touch(item.chat, lane)

    # Holds and migrations

    def hold(self, chat: str, until: float) -> bool:
        """Send nothing to the chat before `until`; never shortens. True if that is longer than it was."""
        chat = self.resolve(chat)
        lane = self._lanes.setdefault(chat, _Lane())
        if until <= lane.hold_until:
            return False
        lane.hold_until = until
        lane.hold_said = True
        self._touch(chat, lane)
        return True

    def flooded(self, chat: str, until: float, now: float) -> bool:
        """Flood control refused the chat until `until`; True when that makes it the bot, now held."""
        several = self.gate.flooded(chat, until, now)
        if self._pacing is not None:
            self._pacing.refused(self.resolve(chat), now, several=several)
        return several

    def pause_only(self, until: dict[str, float]) -> None:
        """Send nothing to these chats before their times, which may be infinite, and resume all others."""
        wanted: dict[str, float] = {}
        for chat, end in until.items():
            chat = self.resolve(chat)
            wanted[chat] = max(end, wanted.get(chat, end))
        for chat in wanted:
            self._lanes.setdefault(chat, _Lane())
        for chat, lane in list(self._lanes.items()):
            lane.paused_until = wanted.get(chat, float("-inf"))
            self._touch(chat, lane)

    def released(self) -> list[str]:
        """Chats whose hold has ended since the last call."""
        released, self._released = self._released, []
        return released

    def migrate(self, old: str, new: str) -> bool:
        """Let `old`'s messages follow it to `new`: lanes merge by sequence, the longer hold wins.

        Sends in flight go along: the merged lane waits for all of them. Returns False when that was known.
        """
        old, target = self.resolve(old), self.resolve(new)
        if old == target:
            return False
        self._moved[old] = target
        source = self._lanes.get(old)
        if source is None:
            return True
        lane = self._lanes.setdefault(target, _Lane())
        for sequence in list(source.waiting):
            item = source.waiting.pop(sequence)
            item.chat = target
            lane.waiting[sequence] = item
        for sequence in list(source.awaited):
            lane.awaited[sequence] = source.awaited.pop(sequence)
        if lane.awaited:
            self._blocked.add(target)
        self._blocked.discard(old)
        for item in source.in_flight:
            item.chat = target
            self._flying.add(target)
        self._flying.discard(old)
        lane.lent, source.lent = lane.lent or source.lent, False
        lane.in_flight += source.in_flight
        source.in_flight = []
        if source.hold_until > lane.hold_until:
            lane.hold_until = source.hold_until
            lane.hold_said = lane.hold_said or source.hold_said
        source.hold_said = False
        lane.paused_until = max(lane.paused_until, source.paused_until)
        source.paused_until = float("-inf")
        self._touch(target, lane)
        self._touch(old, source)
        return True

    def resolve(self, chat: str) -> str:
        """Where messages for `chat` go now, after its migrations."""
        seen = {chat}
        while (chat_now := self._moved.get(chat)) is not None and chat_now not in seen:
            chat = chat_now
            seen.add(chat)
        return chat

    # Leases

    def to_extend(self, lease_now: float, below: float) -> list[Item]:
        """What is still ours and has less than `below` seconds of lease left, sends in flight included."""
        return [i for i in self._items() if 0 < i.leased_until - lease_now < below]

    def extended(self, items: list[Item], leased_until: float) -> None:
        """The server has confirmed the extension of what `to_extend` returned."""
        for item in items:
            item.leased_until = max(item.leased_until, leased_until)
            # The settler goes by the delivery's: a nak beyond its first lease would not be sent.
            item.delivery = replace(item.delivery, leased_until=item.leased_until)
            lane = self._lanes.get(item.chat)
            if lane is not None:
                self._touch(item.chat, lane)

    def lapse(self, now: float, lease_now: float) -> list[int]:
        """Drop what waits here beyond its lease, as it may be somebody else's; returns the sequences."""
        lapsed = [i for i in self._items() if i.leased_until <= lease_now]
        dropped = []
        for item in lapsed:
            lane = self._lanes[item.chat]
            if lane.waiting.get(item.sequence) is item:
                self._forget_waiting(lane, item.sequence)
                self._await(item.chat, lane, item.sequence, now)
                self._touch(item.chat, lane)
                dropped.append(item.sequence)
        return sorted(dropped)

    def expired(self, wall: float) -> list[Item]:
        """Take out what waits here beyond its expiry (seconds since 1970), in stream order; holds or not."""
        expired = [
            item for lane in self._lanes.values() for item in lane.waiting.values() if item.expires_at <= wall
        ]
        for item in expired:
            lane = self._lanes[item.chat]
            self._forget_waiting(lane, item.sequence)
            self._touch(item.chat, lane)
        return sorted(expired, key=lambda i: i.sequence)

    def oldest(self) -> Item | None:
        """The message with the smallest sequence that waits here."""
        heads = (
            lane.waiting[first]
            for lane in self._lanes.values()
            if (first := lane.waiting.first()) is not None
        )
        return min(heads, key=lambda i: i.sequence, default=None)

    # What is sent besides

    def lend(self, chat: str, now: float) -> bool:
        """Keep the chat's lane for something that is no delivery, if a send to it might start now."""
        self._advance(now)
        chat = self.resolve(chat)
        lane = self._lanes.get(chat)
        if now < self.gate.held_until or self.gate.trying or self._is_paced(chat, now):
            return False
        if lane is not None and (lane.held_until > now or lane.in_flight or lane.lent):
            return False
        if self._pacing is not None:
            self._pacing.started(chat, now)
        self._lanes.setdefault(chat, _Lane()).lent = True
        return True

    def return_lent(self, chat: str, now: float) -> None:
        """The lane that was lent goes on."""
        chat = self.resolve(chat)
        if self._pacing is not None:
            self._pacing.ended(chat, now)
        lane = self._lanes[chat]
        lane.lent = False
        self._touch(chat, lane)

    # What is awaited

    def await_other(self, sequence: int, chat: str, until: float) -> bool:
        """Let the chat wait for a message that somebody else has out; False when it is here already."""
        chat = self.resolve(chat)
        lane = self._lanes.setdefault(chat, _Lane())
        if sequence in lane.waiting or any(i.sequence == sequence for i in lane.in_flight):
            return False
        self._await(chat, lane, sequence, until)
        self._touch(chat, lane)
        return True

    def wait_all(self, until: float) -> None:
        """Send nothing to anybody before `until` (monotonic seconds)."""
        self._all_wait_until = max(until, self._all_wait_until)

    def wait_for_others(self, until: float) -> None:
        """Send nothing to anybody before `until` (monotonic seconds), or until this is called again."""
        self._others_until = until

    def overdue(self, now: float) -> list[tuple[int, str]]:
        """Awaited messages that block their lane and should have come by now: (sequence, chat).

        Those that have waited longest for it, as many as are looked up at once. Each is named again only
        after some seconds.
        """
        late = []
        for chat in self._blocked:
            awaited = self._lanes[chat].awaited
            first = awaited.first()
            if first is not None and awaited[first].look_up_at <= now:
                late.append((awaited[first].look_up_at, first, chat))
        named = heapq.nsmallest(LOOK_UP_AT_ONCE, late)
        for _, sequence, chat in named:
            self._lanes[chat].awaited[sequence].look_up_at = now + LOOK_UP_EVERY_SECONDS
        return sorted((sequence, chat) for _, sequence, chat in named)

    def overdue_for(self, sequence: int, chat: str, now: float) -> float:
        """For how many seconds the awaited message has been due; 0 when it is not awaited."""
        lane = self._lanes.get(self.resolve(chat))
        awaited = lane.awaited.get(sequence) if lane else None
        return now - awaited.due if awaited else 0.0

    def gone(self, sequence: int, chat: str) -> bool:
        """The awaited message will not come: its lane goes on. False when it is not awaited any more."""
        chat = self.resolve(chat)
        lane = self._lanes.get(chat)
        if lane is None or not self._stop_awaiting(chat, lane, sequence):
            return False
        self._touch(chat, lane)
        return True

    def settled_below(self, floor: int) -> list[tuple[int, str]]:
        """Stop awaiting what the server counts as settled, up to and with the sequence `floor`."""
        gone = [
            (sequence, chat)
            for chat in self._blocked
            for sequence in self._lanes[chat].awaited
            if sequence <= floor
        ]
        return [entry for entry in sorted(gone) if self.gone(*entry)]

    def reset(self) -> int:
        """Forget everything but the sends in flight: all of it comes again. Returns how many."""
        forgotten = self._waiting + self._awaited
        for chat, lane in list(self._lanes.items()):
            for sequence in list(lane.waiting):
                self._forget_waiting(lane, sequence)
            for sequence in list(lane.awaited):
                self._stop_awaiting(chat, lane, sequence)
            self._touch(chat, lane)
        return forgotten

    def drain(self) -> tuple[list[Item], list[Item]]:
        """Empty the lanes: (what no send is ahead of, what waits behind one), each in stream order."""
        free: list[Item] = []
        behind: list[Item] = []
        for lane in self._lanes.values():
            (behind if lane.in_flight else free).extend(lane.waiting.values())
            for sequence in list(lane.waiting):
                self._forget_waiting(lane, sequence)
        return sorted(free, key=lambda i: i.sequence), sorted(behind, key=lambda i: i.sequence)

    def due_in(self, item: Item, now: float) -> float:
        """How many seconds an item must wait yet: for its chat's hold and for what is awaited before it.

        Not for a pause, which may end at any time.
        """
        lane = self._lanes.get(item.chat)
        if lane is None:
            return 0.0
        ahead = [a.due for sequence, a in lane.awaited.items() if sequence < item.sequence]
        return max(0.0, lane.hold_until - now, *(due - now for due in ahead))

    # Figures

    @property
    def count(self) -> int:
        """How many chats have a lane."""
        return len(self._lanes)

    @property
    def in_flight(self) -> int:
        """How many sends are under way."""
        return self._in_flight

    def flying(self, chat: str) -> bool:
        """Whether a send for the chat is under way."""
        return self.resolve(chat) in self._flying

    @property
    def outstanding(self) -> int:
        """How many messages the server counts as handed over to us."""
        return self._in_flight + self._waiting + self._awaited

    @property
    def waiting(self) -> int:
        """How many messages wait here."""
        return self._waiting

    @property
    def awaited(self) -> int:
        """How many messages were given back, or are with somebody else, and must come (again) first."""
        return self._awaited

    def waiting_for(self, chat: str) -> int:
        """How many messages wait here for one chat."""
        lane = self._lanes.get(self.resolve(chat))
        return len(lane.waiting) if lane else 0

    def wanted(self, now: float) -> int:
        """How many more deliveries to ask for: a few ready ones per sender, more behind held lanes."""
        self._advance(now)
        room = self.max_pending - self.outstanding
        if room <= 0 or self._bytes >= MAX_BYTES:
            # What was given back needs no room to come back, and the lanes behind it move no other way. A
            # server at its max_ack_pending hands over only that, and any server hands it over first.
            room = self._due_back(now)
            if not room:
                return 0
        ready = 0
        for chat in self._readable():
            ready += min(len(self._lanes[chat].waiting), self._ready_per_chat)
            if ready >= self._ready_limit:
                break
        self._surplus = ready - self._ready_limit // 2
        if self._surplus > 0:
            return 0
        return min(max(self._ready_limit - ready, min(self._fruitless, BATCH_LIMIT)), room)

    def runs_low(self) -> bool:
        """Whether `wanted` is to be asked again after one more message was sent and nothing else happened."""
        self._surplus -= 1
        return self._surplus <= 0 or self._pacing is not None

    def next_due(self, now: float) -> float | None:
        """When something may become ready by time alone (monotonic seconds); None for nothing in sight."""
        self._advance(now)
        if now < (until := self._all_open_at()):
            return until
        return self._timed[0][0] if self._timed else None

    def delayed(self, now: float) -> list[Item]:
        """What has waited for its pace alone for longer than `DELAYED_SECONDS`; each is named once."""
        late = []
        if len(self._delayed) > 2 * self.max_pending:
            self._delayed.clear()  # what somebody else has sent is not heard of again
        while self._not_delayed and self._not_delayed[0][0] <= now:
            item = heapq.heappop(self._not_delayed)[2]
            lane = self._lanes.get(item.chat)
            if lane is None or lane.waiting.get(item.sequence) is not item:
                continue
            held_until = max(lane.held_until, self._all_held_until())
            if held_until + DELAYED_SECONDS > now:
                # A pause may be endless, and end all the same.
                self._look_for_delay(item, min(held_until, now + DELAYED_SECONDS) + DELAYED_SECONDS)
            elif lane.awaited or not self._is_paced(item.chat, now):
                self._look_for_delay(item, now + DELAYED_SECONDS)
            elif item.delivery.id not in self._delayed:
                self._delayed.add(item.delivery.id)
                item.delayed = True
                late.append(item)
        return late

    def fullest(self, count: int) -> tuple[str, ...]:
        """The `count` chats with the most messages here, most first."""
        sizes = {c: len(lane.waiting) + len(lane.awaited) for c, lane in self._lanes.items()}
        return tuple(heapq.nlargest(count, sizes, key=lambda c: sizes[c]))

    def held(self, now: float) -> dict[str, float]:
        """The held chats and when their holds end (monotonic seconds)."""
        return {c: lane.hold_until for c, lane in self._lanes.items() if lane.hold_until > now}

    # Inside

    def _opens_at(self, chat: str, lane: _Lane) -> float:
        """When a send to the chat may start: after its hold, and at its pace."""
        return lane.held_until if self._pacing is None else max(lane.held_until, self._pacing.due(chat))

    def _all_open_at(self) -> float:
        """When a send may start whatever the chat."""
        opens_at = self._all_held_until()
        return opens_at if self._pacing is None else max(opens_at, self._pacing.bot_due)

    def _all_held_until(self) -> float:
        return max(self.gate.held_until, self._all_wait_until, self._others_until)

    def _look_for_delay(self, item: Item, at: float) -> None:
        heapq.heappush(self._not_delayed, (at, next(self._numbers), item))

    def _is_paced(self, chat: str, now: float) -> bool:
        return self._pacing is not None and max(self._pacing.due(chat), self._pacing.bot_due) > now

    def _items(self) -> Iterator[Item]:
        for lane in self._lanes.values():
            yield from lane.in_flight
            yield from lane.waiting.values()

    def _readable(self) -> Iterator[str]:
        seen: set[str] = set()
        for _, chat in self._ready:
            lane = self._lanes.get(chat)
            if chat not in seen and lane is not None and lane.head() is not None:
                seen.add(chat)
                yield chat
        yield from (chat for chat in self._flying if self._lanes[chat].waiting)

    def _put(self, lane: _Lane, item: Item) -> None:
        lane.waiting[item.sequence] = item
        self._waiting += 1
        self._bytes += len(item.delivery.payload)

    def _forget_waiting(self, lane: _Lane, sequence: int) -> None:
        item = lane.waiting.pop(sequence)
        self._waiting -= 1
        self._bytes -= len(item.delivery.payload)

    def _land(self, item: Item) -> _Lane:
        lane = self._lanes[item.chat]
        lane.in_flight.remove(item)
        self._in_flight -= 1
        if not lane.in_flight:
            self._flying.discard(item.chat)
        return lane

    def _await(self, chat: str, lane: _Lane, sequence: int, due: float) -> None:
        if sequence not in lane.awaited:
            self._awaited += 1
        lane.awaited[sequence] = _Awaited(due, due + LOOK_UP_AFTER_SECONDS)
        self._blocked.add(chat)

    def _stop_awaiting(self, chat: str, lane: _Lane, sequence: int) -> bool:
        if lane.awaited.pop(sequence, None) is None:
            return False
        self._awaited -= 1
        if not lane.awaited:
            self._blocked.discard(chat)
        return True

    def _due_back(self, now: float) -> int:
        awaited = (a for chat in self._blocked for a in self._lanes[chat].awaited.values())
        return sum(1 for _ in itertools.islice((a for a in awaited if a.due <= now), BATCH_LIMIT))

    def _touch(self, chat: str, lane: _Lane) -> None:
        """Enter the lane where `take` will find it at the right time, or drop an empty one."""
        if lane.head() is not None or lane.hold_said or lane.paused:
            opens_at = self._opens_at(chat, lane)
            if lane.timed_for != opens_at:
                lane.timed_for = opens_at
                if opens_at < float("inf"):
                    heapq.heappush(self._timed, (opens_at, chat))
        elif lane.idle:
            self._lanes.pop(chat, None)

    def _advance(self, now: float) -> None:
        while self._timed and self._timed[0][0] <= now:
            due, chat = heapq.heappop(self._timed)
            lane = self._lanes.get(chat)
            if lane is None:
                continue
            if lane.timed_for == due:
                lane.timed_for = None
            if self._opens_at(chat, lane) > now:
                self._touch(chat, lane)  # its pace may have slowed since
                continue
            lane.paused_until = float("-inf")
            if lane.hold_said:
                lane.hold_said = False
                self._released.append(chat)
            head = lane.head()
            if head is not None:
                if lane.ready_for != head:
                    lane.ready_for = head
                    heapq.heappush(self._ready, (head, chat))
            elif lane.idle:
                del self._lanes[chat]
