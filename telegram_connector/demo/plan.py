"""What a demo does when: drawn up from its length and a seed. Pure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

FLOODED_PER_SECOND = 2.0
OTHERS_PER_SECOND = 3.0
PUBLISHING = 0.85  # of the time


@dataclass(frozen=True)
class Chat:
    """A chat of the demo; one of them is flooded."""

    id: int
    name: str
    flooded: bool = False


CHATS = (Chat(-1001, "alerts", flooded=True), Chat(1002, "trades"), Chat(-1003, "deploys"))


@dataclass(frozen=True)
class Planned:
    """A message to publish; `number` counts from 1 in its chat.

    Attributes:
        at: When, in seconds from the start.
    """

    at: float
    chat: Chat
    number: int

    @property
    def text(self) -> str:
        return f"{self.chat.name} {self.number}"


@dataclass(frozen=True)
class Plan:
    """All of it; times are seconds from the start.

    Attributes:
        retry_after: What the 429 asks for, whole seconds.
        ack_wait_seconds: The consumer's. What the killed worker held comes back after it, which is before the
            flooded chat's hold ends.
    """

    seconds: float
    seed: int
    messages: tuple[Planned, ...]
    flood_at: float
    retry_after: int
    kill_at: float
    restart_after: float
    ack_wait_seconds: float

    def of(self, chat: Chat) -> int:
        """How many messages go to a chat."""
        return sum(message.chat is chat for message in self.messages)


def draw_up(seconds: float, seed: int) -> Plan:
    """Plan a demo of about so many seconds; the same arguments give the same plan."""
    random_ = random.Random(seed)  # noqa: S311 - not for secrets
    messages = []
    for chat in CHATS:
        rate = FLOODED_PER_SECOND if chat.flooded else OTHERS_PER_SECOND
        count = max(3, round(PUBLISHING * seconds * rate))
        times = sorted(random_.uniform(0.0, PUBLISHING * seconds) for _ in range(count))
        messages += [Planned(at, chat, number) for number, at in enumerate(times, 1)]
    return Plan(
        seconds,
        seed,
        tuple(sorted(messages, key=lambda message: message.at)),
        flood_at=0.1 * seconds,
        retry_after=math.ceil(0.45 * seconds),
        kill_at=0.3 * seconds,
        restart_after=0.05 * seconds,
        ack_wait_seconds=max(2.0, 0.1 * seconds),
    )
