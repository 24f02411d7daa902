"""The delivery, what may be told JetStream about it, and the two seams to NATS.

`bridge` implements `MessageSource` and `Store` on a real server; the tests' fakes implement them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias


class DeliveryId(NamedTuple):
    """What identifies a stored message for good.

    A stream that is deleted and made again counts from 1, so the sequence alone does not.
    """

    stream: str
    sequence: int
    stored_at_ns: int


@dataclass(frozen=True)
class Delivery:
    """One hand-over of a stored message.

    Attributes:
        id: Stream, sequence and store timestamp (nanoseconds since 1970).
        payload: The publisher's bytes.
        headers: The publisher's headers; one value per name.
        reply: The subject that settles this hand-over.
        hand_over: 1 for the first, as far as the server remembers; a hint, never proof.
        leased_until: When the lease ends, in seconds of the bridge's `LeaseClock`.
        last: The server will not hand it over again (a finite ``max_deliver`` that we may not change), so a
            nak would lose it.
        generation: Which incarnation of the consumer it is from: after a `Reset` the handles from before
            would settle whatever has their sequence now.
    """

    id: DeliveryId
    payload: bytes
    headers: Mapping[str, str]
    reply: str
    hand_over: int
    leased_until: float
    last: bool = False
    generation: int = 0


@dataclass(frozen=True)
class Reset:
    """The consumer was made anew: every handle from before is void, and what is unsettled comes again."""

    reason: str


@dataclass(frozen=True)
class Taken:
    """This connector has become active, or has just been bound: what somebody else had out is awaited.

    Attributes:
        entries: (id, payload) of what may be out; some of it may be settled.
        last: The last sequence that was handed over to others.
        out: How many messages are out with others.
        within_seconds: How long they may take to come back.
        everything: Too much to look up: all chats wait.
    """

    entries: tuple[tuple[DeliveryId, bytes], ...]
    last: int
    out: int
    within_seconds: float
    everything: bool = False


@dataclass(frozen=True)
class Missed:
    """Handed over to a connection of ours that was dead without the server's knowing; it comes again.

    Attributes:
        entries: (id, payload) of each.
        within_seconds: How long they may take to come back.
        everything: They could not be looked up: all chats wait.
    """

    entries: tuple[tuple[DeliveryId, bytes], ...]
    within_seconds: float
    everything: bool = False


@dataclass(frozen=True)
class StandDown:
    """Another connector is active now: what has not been started is given back, and nothing more is sent."""


@dataclass(frozen=True)
class Ack:
    """Delivered: never hand it over again."""


@dataclass(frozen=True)
class Nak:
    """Not now: hand it over again after a delay in seconds."""

    delay_seconds: float


@dataclass(frozen=True)
class DeadLetter:
    """What is stored of a message that was not delivered.

    Attributes:
        payload: The publisher's bytes.
        headers: See `deadletter`.
    """

    payload: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Term:
    """Never hand it over again, for a reason; not before its dead letter, if any, is stored and confirmed."""

    reason: str
    dead_letter: DeadLetter | None = None


Command: TypeAlias = Ack | Nak | Term
Entry: TypeAlias = Delivery | Reset | Taken | Missed | StandDown


class MessageSource(Protocol):
    """Where deliveries come from and where they are settled; thread-safe.

    The futures resolve to True once the server has confirmed, to False when the settlement was superseded by
    a redelivery or became pointless (lease over, consumer gone).
    """

    def next(self, timeout_seconds: float) -> Entry | None:
        """The next delivery, or what precedes it; None after `timeout_seconds`, or at once after `wake`."""

    def ack(self, delivery: Delivery) -> Future[bool]:
        """Settle as delivered; retried over reconnects until confirmed."""

    def nak(self, delivery: Delivery, delay_seconds: float) -> Future[bool]:
        """Give back; sent only within the lease."""

    def term(self, delivery: Delivery, reason: str, dead_letter: DeadLetter | None = None) -> Future[bool]:
        """Store the dead letter, if any, then settle as never to be delivered; retried until confirmed."""

    def keeps_dead_letters(self) -> bool:
        """Whether there is a stream for dead letters, as last heard."""

    def announce(self, event: bytes) -> None:
        """Publish an event for operators, if there is a connection; nobody need listen."""

    def max_age_seconds(self) -> float | None:
        """After how long the stream deletes messages; None for never or unknown."""

    def extend(self, deliveries: Sequence[Delivery]) -> Future[float | None]:
        """Ask for a fresh ack_wait for all; resolves to the new end of the leases, None when unconfirmed."""

    def present(self, sequence: int) -> Future[bool | None]:
        """Whether the stream still holds the sequence; None when the server did not say."""

    def want(self, count: int) -> None:
        """How many more deliveries are wanted now; replaces the last figure."""

    def may_send(self, workers: int) -> bool:
        """Whether a send may start: connected, active, and at most `workers` settlements unconfirmed."""

    def active(self) -> bool:
        """Whether this connector is the one that sends, as far as it knows."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called, from any thread, whenever `may_send` may have become true."""

    def ack_wait_seconds(self) -> float:
        """How long a delivery is ours, as the server has it; a default before it was asked."""

    def ack_floor(self) -> int:
        """The stream sequence up to which everything is settled, as last heard; 0 when unknown."""

    def stop_pulling(self, timeout_seconds: float) -> None:
        """Ask for no more, and wait until what was on its way has arrived."""

    def wake(self) -> None:
        """Make a waiting `next` return."""


class Store(Protocol):
    """A few small documents that outlive the process; the futures raise `BridgeError`."""

    def get(self, key: str) -> Future[bytes | None]:
        """The value; None where there is none."""

    def put(self, key: str, value: bytes) -> Future[None]:
        """Write, whatever was there."""


class Versioned(NamedTuple):
    """A value of a key-value bucket and the revision that a next write may replace."""

    value: bytes
    revision: int


class Records(Protocol):
    """Key-value buckets that are written by revision; the futures raise `BridgeError`.

    A bucket that does not exist raises like a server that is away: it must not look like an empty one.
    """

    def read(self, bucket: str, key: str) -> Future[Versioned | None]:
        """What is stored; None where there is nothing, or it was deleted."""

    def write(self, bucket: str, key: str, value: bytes, revision: int | None) -> Future[int]:
        """Replace `revision` (0 for nothing yet, None for whatever there is); resolves to the new one.

        Raises `RevisionMismatch` through the future where somebody else was first. After `Unanswered` it may
        have been written.
        """
