"""A model of Telegram's flood control. A model: the true limits are not published.

Telegram says in its FAQ for bots: about one message a second in one chat, short bursts aside, 20 a minute
in one group, about 30 a second in all. This keeps to those three figures:

* per chat a bucket of `chat_burst` messages that refills with `per_chat` a second;
* per group, supergroup or channel at most `per_group_minute` messages within any 60 s;
* per bot at most `per_bot` messages within any second.

What is over a limit is refused with the whole seconds until it fits, and its chat (or, for the third limit,
the bot) is held until then. A caller who comes back during a hold is refused again and the hold grows: by
5 s the first time, then by 10, 20 and so on, doubling, to at most an hour per return. After a hold that was
kept the growth begins anew. Nothing here reads a clock: `now` is an argument, in seconds, and the same
calls give the same answers.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

GROWTH_SECONDS = 5
MAX_GROWTH_SECONDS = 3600
# TDLib never passes on a longer wait (NetQueryDelayer.cpp).
MAX_WAIT_SECONDS = 1_209_600


@dataclass(frozen=True)
class Limits:
    """The figures of the model; a figure of 0 turns its limit off.

    Attributes:
        per_chat: Messages a second in one chat.
        per_group_minute: Messages within 60 s in one group or channel.
        per_bot: Messages within one second of one bot.
        chat_burst: Messages that one chat takes at once after a pause.
    """

    per_chat: float = 1.0
    per_group_minute: int = 20
    per_bot: int = 30
    chat_burst: int = 5


TELEGRAM = Limits()
STRICT = Limits(chat_burst=1)


def parse(text: str) -> Limits | None:
    """Limits from ``off`` (None), ``telegram``, ``strict`` (no bursts) or three figures such as ``1,20,30``.

    Raises:
        ValueError: It is none of these.
    """
    word = text.strip().lower()
    if word in ("", "off", "none"):
        return None
    if word in ("telegram", "strict"):
        return TELEGRAM if word == "telegram" else STRICT
    try:
        chat, group, bot = word.split(",")
        limits = Limits(float(chat), int(group), int(bot))
    except ValueError:
        raise ValueError(
            f"flood is off, telegram, strict or three numbers such as 1,20,30, not {text!r}"
        ) from None
    if min(limits.per_chat, limits.per_group_minute, limits.per_bot) < 0:
        raise ValueError(f"flood limits cannot be negative: {text!r}")
    return limits


@dataclass
class _Hold:
    until: float = -math.inf
    returns: int = 0

    def refuse(self, now: float, wait: float) -> int:
        seconds = max(1, math.ceil(wait))
        self.until = now + seconds
        return seconds

    def grow(self, now: float) -> int:
        step = min(GROWTH_SECONDS * 2 ** min(self.returns, 20), MAX_GROWTH_SECONDS)
        self.returns += 1
        return self.refuse(now, min(self.until - now + step, MAX_WAIT_SECONDS))


@dataclass
class _ChatCount:
    tokens: float
    at: float
    minute: deque[float] = field(default_factory=deque)
    hold: _Hold = field(default_factory=_Hold)


@dataclass
class _BotCount:
    second: deque[float] = field(default_factory=deque)
    hold: _Hold = field(default_factory=_Hold)


class Flood:
    """Counts the messages of every bot and chat against limits; not thread-safe, its owner locks."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        self._chats: dict[tuple[int, int], _ChatCount] = {}
        self._bots: dict[int, _BotCount] = {}

    def admit(self, bot_id: int, chat_id: int, is_group: bool, now: float) -> int | None:
        """Counts one message if it fits; else the whole seconds to wait, and nothing is counted."""
        limits = self.limits
        if limits is None:
            return None
        bot = self._bots.setdefault(bot_id, _BotCount())
        key = (bot_id, chat_id)
        chat = self._chats.setdefault(key, _ChatCount(float(limits.chat_burst), now))
        for hold in (bot.hold, chat.hold):
            if now < hold.until:
                return hold.grow(now)
        self._refill(limits, chat, now)
        _forget(bot.second, now - 1.0)
        _forget(chat.minute, now - 60.0)
        wait = self._chat_wait(limits, chat, is_group, now)
        if wait > 0:
            return chat.hold.refuse(now, wait)
        if limits.per_bot and len(bot.second) >= limits.per_bot:
            return bot.hold.refuse(now, bot.second[0] + 1.0 - now)
        chat.tokens -= 1.0
        chat.minute.append(now)
        bot.second.append(now)
        bot.hold.returns = chat.hold.returns = 0
        return None

    @staticmethod
    def _refill(limits: Limits, chat: _ChatCount, now: float) -> None:
        # A clock that was set back counts as no time gone by.
        gone = max(0.0, now - chat.at)
        chat.tokens = min(float(limits.chat_burst), chat.tokens + gone * limits.per_chat)
        chat.at = now

    @staticmethod
    def _chat_wait(limits: Limits, chat: _ChatCount, is_group: bool, now: float) -> float:
        wait = 0.0
        # Sums of fractions of a second fall short of 1 by rounding; a microsecond is no flood.
        if limits.per_chat and chat.tokens < 1.0 - 1e-6:
            wait = (1.0 - chat.tokens) / limits.per_chat
        if is_group and limits.per_group_minute and len(chat.minute) >= limits.per_group_minute:
            wait = max(wait, chat.minute[-limits.per_group_minute] + 60.0 - now)
        return wait

    def reset(self) -> None:
        """Forgets all counts and holds."""
        self._chats.clear()
        self._bots.clear()


def _forget(times: deque[float], before: float) -> None:
    while times and times[0] <= before:
        times.popleft()
