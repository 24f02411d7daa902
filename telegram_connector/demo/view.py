"""What the demo shows: its state as data, the words of its end, and lines for where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from telegram_connector.demo.plan import Chat, Plan
from telegram_connector.demo.tally import Tally

PROGRESS_LINES = 8


@dataclass(frozen=True)
class Row:
    """A chat's figures.

    Attributes:
        planned: How many messages it gets in all.
        published: How many are in the stream.
        sent: How many the Bot API has accepted.
        held_seconds: For how much longer it is held; 0 when it is not.
    """

    chat: Chat
    planned: int
    published: int
    sent: int
    held_seconds: float = 0.0

    @property
    def waiting(self) -> int:
        return max(0, self.published - self.sent)

    @property
    def state(self) -> str:
        if self.held_seconds > 0:
            return f"held {self.held_seconds:4.1f} s more"
        return "all sent" if self.sent >= self.planned else "flowing"


@dataclass(frozen=True)
class Snapshot:
    """The demo at one moment.

    Attributes:
        at: Seconds from the start.
        worker: What the worker is doing, in words.
        worker_lives: Whether there is one.
    """

    at: float
    rows: Sequence[Row]
    worker: str
    worker_lives: bool


class View(Protocol):
    """Shows a demo."""

    def begin(self, plan: Plan) -> None: ...

    def tell(self, at: float, words: str) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...

    def end(self, tally: Tally) -> None: ...

    def close(self) -> None: ...


def title(plan: Plan) -> str:
    """What the demo is about."""
    return (
        f"{len(plan.messages)} messages to three chats within {plan.messages[-1].at:.0f} s, through a real "
        "nats-server to a sandbox Bot API on this machine"
    )


def verdict(tally: Tally) -> str:
    """The result in one line."""
    order = f"order broken {len(tally.order_breaks)} times" if tally.order_breaks else "order kept"
    return (
        f"{tally.published} published, {tally.arrived} arrived: "
        f"lost {len(tally.lost)}, doubled {len(tally.doubled)}, {order}"
    )


def remarks(tally: Tally) -> tuple[str, ...]:
    """What must be said beside the verdict."""
    said = []
    if tally.lost:
        said.append(f"Lost, or not there in time: {', '.join(tally.lost)}")
    said += [f"Doubled: {twice.text} ({twice.reason})" for twice in tally.doubled]
    if tally.order_breaks:
        said.append(f"Out of order: {', '.join(tally.order_breaks)}")
    if tally.others_waited is not None:
        median, most = (1000 * seconds for seconds in tally.others_waited)
        said.append(
            f"While one chat was held, a message to the others took {median:.0f} ms (median; {most:.0f} ms "
            "at most), the time without a worker left out."
        )
    moment = "came between two sends" if tally.killed_in_a_pause else "may have come in the middle of a send"
    said.append(
        f"This kill {moment}, with only the held chat's messages in hand. One in the middle of a send may "
        "double that message: Telegram has no idempotency key, so what was sent without an answer is sent "
        "again rather than lost. One in the middle of a backlog leaves what was in hand out until ack_wait "
        "is over; newer messages of those chats wait for it."
    )
    return tuple(said)


class PlainView:
    """Lines, for logs and pipes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._every = 0.0
        self._next = 0.0

    def begin(self, plan: Plan) -> None:
        self._every = plan.seconds / PROGRESS_LINES
        self._say(title(plan))

    def tell(self, at: float, words: str) -> None:
        self._say(f"{at:5.1f} s  {words}")

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.at >= self._next:
            self._next = snapshot.at + self._every
            figures = "; ".join(
                f"{row.chat.name} {row.sent} sent, {row.waiting} waiting"
                + (f", {row.state}" if row.held_seconds > 0 else "")
                for row in snapshot.rows
            )
            self._say(f"{snapshot.at:5.1f} s    {figures}")

    def end(self, tally: Tally) -> None:
        self._say(verdict(tally))
        for words in remarks(tally):
            self._say(words)

    def close(self) -> None:
        """Nothing to close."""
