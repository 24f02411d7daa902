"""What arrived of what was published: pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from telegram_connector.demo.plan import Planned


@dataclass(frozen=True)
class Arrival:
    """A message that the Bot API accepted, whether or not the worker got to hear of it.

    Attributes:
        at: Unix seconds.
    """

    chat_id: int
    text: str
    at: float


@dataclass(frozen=True)
class Twice:
    """A message that arrived more than once."""

    text: str
    reason: str


@dataclass(frozen=True)
class Tally:
    """What became of the messages.

    Attributes:
        lost: Texts that were published and did not arrive.
        doubled: What arrived more than once, and why.
        order_breaks: Texts that arrived after a later one of their chat.
        others_waited: Seconds from publishing to acceptance, median and most, in the chats that were not
            flooded, while the flooded one was held and a worker ran; None when there were none.
        killed_in_a_pause: Whether no send was under way at the kill, and nothing sent was unacknowledged.
    """

    published: int
    arrived: int
    lost: tuple[str, ...]
    doubled: tuple[Twice, ...]
    order_breaks: tuple[str, ...]
    others_waited: tuple[float, float] | None
    killed_in_a_pause: bool

    @property
    def clean(self) -> bool:
        """Whether nothing was lost or doubled and order was kept."""
        return not (self.lost or self.doubled or self.order_breaks)


@dataclass(frozen=True)
class Span:
    """From when to when, Unix seconds."""

    begin: float
    end: float

    def holds(self, at: float) -> bool:
        return self.begin <= at <= self.end


def tally(
    published: Sequence[tuple[Planned, float]],
    arrivals: Sequence[Arrival],
    held: Span | None,
    dead: Span | None,
    killed_in_a_pause: bool = True,
) -> Tally:
    """Compare.

    Args:
        published: Each message and when it was stored, Unix seconds.
        arrivals: In order of acceptance.
        held: While the flooded chat was held.
        dead: From the kill until the next worker was at work.
        killed_in_a_pause: As of `Tally`.
    """
    counts = Counter(arrival.text for arrival in arrivals)
    first: dict[str, float] = {}
    for arrival in arrivals:
        first.setdefault(arrival.text, arrival.at)
    waits = [
        first[message.text] - at
        for message, at in published
        if message.text in first
        and not message.chat.flooded
        and held is not None
        and held.holds(at)
        and not (dead is not None and dead.holds(at))
    ]
    return Tally(
        len(published),
        len(first),
        tuple(message.text for message, _ in published if message.text not in first),
        tuple(
            Twice(text, _reason([a.at for a in arrivals if a.text == text], dead))
            for text, count in counts.items()
            if count > 1
        ),
        _order_breaks([message for message, _ in published], list(first)),
        (statistics.median(waits), max(waits)) if waits else None,
        killed_in_a_pause,
    )


def _order_breaks(published: Sequence[Planned], texts: Sequence[str]) -> tuple[str, ...]:
    known = {message.text: message for message in published}
    highest: Counter[int] = Counter()
    breaks = []
    for text in texts:
        message = known.get(text)
        if message is None:
            continue
        if message.number < highest[message.chat.id]:
            breaks.append(text)
        highest[message.chat.id] = max(highest[message.chat.id], message.number)
    return tuple(breaks)


def _reason(times: Sequence[float], dead: Span | None) -> str:
    if dead is not None and min(times) <= dead.begin <= max(times):
        return "accepted before the kill, whose victim could not acknowledge it any more"
    return "no reason known: a fault of the connector"
