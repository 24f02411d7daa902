"""What must be done now and then while messages wait: leases, look-ups, expiry, figures.

Called under the worker's lock, twice a second. Nothing here waits: answers are collected at the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from telegram_connector.delivery import MessageSource, Taken
from telegram_connector.events import (
    BacklogOld,
    BecameActive,
    ChatReleased,
    Delayed,
    LeaseLapsed,
    NotComingBack,
    Observer,
    Saturated,
)
from telegram_connector.lanes import DELAYED_SECONDS, Item, Lanes
from telegram_connector.settling import Settling, subject_of

EXTEND_BELOW = 2 / 3  # of ack_wait
GIVE_UP_AWAITING_SECONDS = 60.0  # beyond ack_wait: somebody else has it
SATURATED = 0.8
SATURATION_OVER = 0.7
OLD = 0.8  # of the stream's max_age
EXPIRY_EVERY_SECONDS = 5.0
OTHERS_TICKS = 4  # two seconds under a live pull, after the leases of others are over


@dataclass
class _Others:
    """Messages that others had out when this connector became active."""

    awaited: dict[int, str]
    looked_up: set[int] | None  # None where it was too much
    last: int
    out: int
    until: float
    back: set[int] = field(default_factory=set)
    ticks_asked: int = 0  # since `until`, with a pull live

    def has(self, sequence: int) -> bool:
        return sequence <= self.last if self.looked_up is None else sequence in self.looked_up


class Upkeep:
    """Keeps what waits in the lanes ours, and lets go of what is not or must not wait any longer.

    Args:
        expire: Called with what is too old to be sent, after it was taken out of its lane.
    """

    def __init__(
        self,
        lanes: Lanes,
        source: MessageSource,
        settling: Settling,
        expire: Callable[[Item], None],
        observe: Observer,
    ) -> None:
        self._lanes = lanes
        self._source = source
        self._settling = settling
        self._expire = expire
        self._observe = observe
        self._extending: tuple[Future[float | None], list[Item]] | None = None
        self._looking_up: list[tuple[Future[bool | None], int, str]] = []
        self._next_expiry = float("-inf")
        self._saturated = False
        self._old = False
        self._others: _Others | None = None

    def tick(self, now: float, lease_now: float, wall: float, *, pulling: bool) -> None:
        """Do what is due.

        Args:
            now: Monotonic seconds.
            lease_now: Seconds of the leases' clock.
            wall: Seconds since 1970.
            pulling: Whether deliveries are asked for; otherwise nothing can come, and so nothing is late.
        """
        lapsed = self._lanes.lapse(now, lease_now)
        if lapsed:
            self._observe(LeaseLapsed(len(lapsed), lapsed[0]))
        self._look_for_others(now, pulling)
        self._keep_leases(lease_now)
        self._look_up_awaited(now, pulling)
        if now >= self._next_expiry:
            self._next_expiry = now + EXPIRY_EVERY_SECONDS
            for item in self._lanes.expired(wall):
                self._expire(item)
            self._report_age(wall)
        self._report_saturation()
        for item in self._lanes.delayed(now):
            self._observe(Delayed(subject_of(item.delivery, item.content, item.chat), DELAYED_SECONDS))
        self.say_released()
        self._settling.tidy()

    # What others have out

    def take_over(self, taken: Taken, chats: dict[int, str], now: float) -> None:
        """Let the chats wait for what a predecessor had out: until it is back, or its leases are over.

        Args:
            chats: The chats of `taken.entries` by sequence, without those that this process has settled.
        """
        until = now + taken.within_seconds
        awaited = {s: c for s, c in chats.items() if self._lanes.await_other(s, c, until)}
        if taken.everything:
            self._lanes.wait_for_others(until)
        looked_up = None if taken.everything else set(chats)
        await_some = taken.out > 0 and (taken.everything or bool(awaited))
        self._others = _Others(awaited, looked_up, taken.last, taken.out, until) if await_some else None
        self._observe(BecameActive(taken.out))

    def came_back(self, sequence: int) -> None:
        """A message was handed over to us; it may be one that somebody else had."""
        others = self._others
        if others is not None and others.has(sequence):
            others.awaited.pop(sequence, None)
            others.back.add(sequence)  # one that is refused for now comes several times
            if len(others.back) >= others.out or not (others.awaited or others.looked_up is None):
                self._await_no_others()

    def _look_for_others(self, now: float, pulling: bool) -> None:
        others = self._others
        if others is None:
            return
        # What is free again comes first with a pull, and without one not at all: while enough else is ready
        # to be sent nothing is asked for, and time alone says nothing.
        others.ticks_asked += now >= others.until and pulling
        if others.ticks_asked >= OTHERS_TICKS or self._source.ack_floor() >= others.last:
            self._await_no_others()

    def _await_no_others(self) -> None:
        """As many as were out are back, or their leases are over: the rest was settled long ago."""
        if self._others is not None:
            for sequence, chat in self._others.awaited.items():
                self._lanes.gone(sequence, chat)
            self._lanes.wait_for_others(float("-inf"))
            self._others = None

    def say_released(self) -> None:
        """Report the holds that have ended."""
        for chat in self._lanes.released():
            self._observe(ChatReleased(chat))

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

    def _look_up_awaited(self, now: float, pulling: bool) -> None:
        for sequence, chat in self._lanes.settled_below(self._source.ack_floor()):
            self._observe(NotComingBack(sequence, chat, "settled"))
        unanswered = []
        for future, sequence, chat in self._looking_up:
            if not future.done():
                unanswered.append((future, sequence, chat))
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
        if pulling and not unanswered:
            unanswered = [(self._source.present(s), s, c) for s, c in self._lanes.overdue(now)]
        self._looking_up = unanswered

    def _report_age(self, wall: float) -> None:
        limit = self._source.max_age_seconds()
        oldest = self._lanes.oldest() if limit else None
        age = wall - oldest.delivery.id.stored_at_ns / 1e9 if oldest else 0.0
        old = limit is not None and age >= OLD * limit
        if old and not self._old and limit is not None:
            self._observe(BacklogOld(age, limit))
        self._old = old

    def _report_saturation(self) -> None:
        share = self._lanes.outstanding / self._lanes.max_pending
        if share >= SATURATED and not self._saturated:
            self._saturated = True
            self._observe(Saturated(self._lanes.outstanding, self._lanes.max_pending, self._lanes.fullest(5)))
        elif share < SATURATION_OVER:
            self._saturated = False
