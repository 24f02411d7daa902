"""How fast to send so that Telegram need not refuse. Pure: `now` is an argument, in monotonic seconds.

Telegram counts a message when it arrives, which is some time between the start of its send and the answer.
So what a chat may still take is counted from the answer: whatever a slow network does, two messages are
never nearer to each other at Telegram than they were meant to be.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

BURST = 3  # messages that a private chat takes at once after a pause
MARGIN = 1.001  # clocks differ; NTP alone bends one by up to 0.05%
# Per send: how fast the quickest answer is forgotten, should the way to Telegram have got longer. Slow
# enough that a usual scatter brings one nearly as quick before it is off by the bot's margin.
QUICKEST_FORGOTTEN_SECONDS = 0.000_005
BOT_MARGIN = 1.003
MOST_SLOWED = 8.0
SLOWED_HALF_SECONDS = 60.0
SLOWED_OVER = 1.05
# How long a chat that was flooded gets no burst. Its true limits are not known, and one that refuses bursts
# would otherwise refuse one again and again.
NO_BURST_SECONDS = 600.0
FORGET_ABOVE = 256  # chats; below it is not worth looking for those that are at rest


@dataclass(frozen=True)
class Rates:
    """What is sent at most.

    Attributes:
        bot_per_second: Messages of the bot.
        chat_per_second: Messages to one chat, after a burst.
        group_per_minute: Messages to one group or channel, evenly spread.
    """

    bot_per_second: float = 30.0
    chat_per_second: float = 1.0
    group_per_minute: float = 20.0


@dataclass
class _Slowed:
    """By how much refusals have slowed somebody down: each by two, and half of it wears off in a minute."""

    factor: float = 1.0
    since: float = -math.inf

    def by(self, now: float) -> float:
        factor: float = self.factor * 0.5 ** ((now - self.since) / SLOWED_HALF_SECONDS)
        return factor if factor > SLOWED_OVER else 1.0

    def refused(self, now: float) -> None:
        self.factor = min(2.0 * self.by(now), MOST_SLOWED)
        self.since = now


class _Chat:
    """One chat: a bucket that holds a burst and refills evenly."""

    def __init__(self, interval: float, burst: int) -> None:
        self._interval = interval
        self._burst = burst
        self._full_at = -math.inf
        self._slowed = _Slowed()
        self.due = -math.inf
        self.started_at = -math.inf

    def started(self, now: float) -> None:
        self.started_at = now
        self._fill_later(max(self._full_at, now) + self._seconds(now), now)

    def ended(self, now: float) -> None:
        self._fill_later(max(self._full_at, now + self._seconds(now)), now)

    def refused(self, now: float) -> None:
        self._slowed.refused(now)
        self._fill_later(self._full_at, now)

    def at_rest(self, now: float) -> bool:
        return self._full_at <= now and self._bursts(now)

    def _fill_later(self, full_at: float, now: float) -> None:
        self._full_at = full_at
        self.due = full_at - (self._burst - 1) * self._interval if self._bursts(now) else full_at

    def _bursts(self, now: float) -> bool:
        return now - self._slowed.since > NO_BURST_SECONDS

    def _seconds(self, now: float) -> float:
        return self._interval * self._slowed.by(now)


class Pacing:
    """When the next send may start, for each chat and for the bot.

    A chat's id tells what it is: groups, supergroups and channels have negative ids, and only they have
    an ``@name`` that can be written to. The lane of unreadable envelopes, "", sends nothing and is free.
    """

    def __init__(self, rates: Rates) -> None:
        private = MARGIN / rates.chat_per_second
        self._private = private
        self._group = max(private, MARGIN * 60.0 / rates.group_per_minute)
        self._chats: dict[str, _Chat] = {}
        self._look_above = FORGET_ABOVE
        # One entry per message that the bot may send within the window: when it is free to be used again.
        # Those in flight are not among them.
        slots = max(1, math.floor(rates.bot_per_second))
        self._free = [-math.inf] * slots
        self._window = BOT_MARGIN * slots / rates.bot_per_second
        self._quickest = math.inf
        self._unmeasured = slots  # sends; the first ones also make their connections, and tell nothing
        self._slowed = _Slowed()

    @property
    def bot_due(self) -> float:
        """When the bot may start a send; infinite until one in flight has ended."""
        return self._free[0] if self._free else math.inf

    def due(self, chat: str) -> float:
        """When a send to the chat may start, the bot's own limit aside."""
        known = self._chats.get(chat)
        return known.due if known else -math.inf

    def started(self, chat: str, now: float) -> None:
        """A send to the chat starts; each is followed by one `ended`."""
        if chat:
            heapq.heappop(self._free)
            self._chat(chat, now).started(now)

    def ended(self, chat: str, now: float) -> None:
        """A send to the chat has been answered, or never will be.

        A chat's next send starts after this, so its arrivals are apart. The bot's sends overlap, and to
        count each from its answer would cost the length of a call in every second. But the quickest call
        says what the way there and back takes at least: a message arrived no later than its answer came,
        less the quickest way back; the one that uses its slot again needs the quickest way there.
        """
        if not chat:
            return
        known = self._chat(chat, now)
        known.ended(now)
        self._quickest = min(now - known.started_at, self._quickest + QUICKEST_FORGOTTEN_SECONDS)
        self._unmeasured = max(0, self._unmeasured - 1)
        arrived = now if self._unmeasured else now - self._quickest
        heapq.heappush(self._free, arrived + self._window * self._slowed.by(now))

    def refused(self, chat: str, now: float, *, several: bool) -> None:
        """Flood control refused the chat: it gets slower for a while, and the bot when `several` were."""
        if chat:
            self._chat(chat, now).refused(now)
        if several:
            self._slowed.refused(now)

    def _chat(self, chat: str, now: float) -> _Chat:
        known = self._chats.get(chat)
        if known is None:
            if len(self._chats) >= self._look_above:
                self._chats = {c: state for c, state in self._chats.items() if not state.at_rest(now)}
                self._look_above = max(FORGET_ABOVE, 2 * len(self._chats))
            is_group = chat[0] in "-@"
            known = _Chat(self._group, 1) if is_group else _Chat(self._private, BURST)
            self._chats[chat] = known
        return known
