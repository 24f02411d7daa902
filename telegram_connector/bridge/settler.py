"""Confirmed settlements: a request to the delivery's reply subject, answered in about 0.2 ms."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from telegram_connector.bridge.link import Link, PermissionDenied
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Ack, Command, DeadLetter, Delivery, Nak, Term
from telegram_connector.errors import ApiError, BridgeError, Disconnected, Unanswered
from telegram_connector.topology import NS

CONFIRM_SECONDS = 2.0
# A killed server forgets what was confirmed in its last 50 to 100 ms (measured).
REPEAT_WITHIN_SECONDS = 5.0
REPEAT_COUNT = 1000
AGAIN_SECONDS = 0.25
DENIED_PAUSE_SECONDS = 5.0


def wire(command: Command) -> bytes:
    """What JetStream is sent for a command."""
    match command:
        case Ack():
            return b"+ACK"
        case Nak():
            # A delay of 0 would go through the server's timer and let newer messages overtake; a plain nak
            # is first in the queue at once (measured, and read in nats-server's consumer.go).
            if command.delay_seconds <= 0:
                return b"-NAK"
            return b"-NAK " + json.dumps({"delay": int(command.delay_seconds * NS)}).encode()
        case Term():
            # A line break would end the reason early.
            return b"+TERM " + " ".join(command.reason.split()).encode()


@dataclass(eq=False)
class _Pending:
    delivery: Delivery
    task: asyncio.Task[object]
    pointless: bool = False
    counted: bool = True

    def drop(self) -> None:
        self.pointless = True
        self.task.cancel()


class Settler:
    """Settles deliveries over whatever link there is; one pending settlement per sequence.

    Args:
        link: Waits for a live link and returns it.
        probe: Asks for the consumer's info over a link; raises `BridgeError` when the server does not answer.
        changed: Called whenever `unconfirmed` went down.
        suspect: Called when nobody takes settlements: the consumer may be gone.
        bury: Stores a dead letter, however long that takes.
        denied: Called when the server refuses to let a settlement through.
    """

    def __init__(
        self,
        clock: LeaseClock,
        link: Callable[[], Awaitable[Link]],
        probe: Callable[[Link], Awaitable[Mapping[str, Any]]],
        changed: Callable[[], None],
        suspect: Callable[[], None],
        bury: Callable[[int, DeadLetter], Awaitable[None]],
        denied: Callable[[PermissionDenied], None],
    ) -> None:
        self.generation = 0
        self._denied = denied
        self._clock = clock
        self._link = link
        self._probe = probe
        self._changed = changed
        self._suspect = suspect
        self._bury = bury
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()
        self._unconfirmed = 0
        self._confirmed: deque[tuple[float, int, str, bytes]] = deque(maxlen=REPEAT_COUNT)

    @property
    def unconfirmed(self) -> int:
        """Settlements that the server has not confirmed and that may be lost with the connection."""
        return self._unconfirmed

    def count(self) -> None:
        """Count a settlement that is about to be handed to `settle`; from any thread."""
        with self._lock:
            self._unconfirmed += 1

    def _uncount(self, pending: _Pending) -> None:
        if pending.counted:
            pending.counted = False
            with self._lock:
                self._unconfirmed -= 1
            self._changed()

    async def settle(self, delivery: Delivery, command: Command) -> bool:
        """Settle until confirmed (True), or until it is pointless (False).

        Ack and term are tried over reconnects, a nak only within the lease: a late one would make the server
        hand the message over a second time while its next delivery is out (measured).
        """
        task = asyncio.current_task()
        assert task is not None
        pending = _Pending(delivery, task)
        if delivery.generation == self.generation:
            self.supersede(delivery.id.sequence)
            self._pending[delivery.id.sequence] = pending
        try:
            return await self._try(pending, command)
        except asyncio.CancelledError:
            if pending.pointless:
                return False
            raise
        finally:
            if self._pending.get(delivery.id.sequence) is pending:
                del self._pending[delivery.id.sequence]
            self._uncount(pending)

    async def _try(self, pending: _Pending, command: Command) -> bool:
        delivery = pending.delivery
        if isinstance(command, Term) and command.dead_letter is not None:
            # Nothing is in doubt while it is stored, so nothing else waits for it.
            self._uncount(pending)
            await self._bury(delivery.id.sequence, command.dead_letter)
        while True:
            if delivery.generation != self.generation:
                return False  # it would settle whatever has that sequence now
            if isinstance(command, Nak) and self._clock() >= delivery.leased_until:
                return False
            link = await self._link()
            if delivery.generation != self.generation:
                return False
            try:
                await link.request(delivery.reply, wire(command), timeout_seconds=CONFIRM_SECONDS)
            except PermissionDenied as denied:
                # It stays counted: without acks, a next process would send all of it again.
                self._denied(denied)
                await asyncio.sleep(DENIED_PAUSE_SECONDS)
            except Unanswered:
                await self._doubt(pending, link)
            except ApiError:
                self._suspect()
                await asyncio.sleep(AGAIN_SECONDS)
            except Disconnected:
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                if not isinstance(command, Nak):
                    sequence = delivery.id.sequence
                    self._confirmed.append((self._clock(), sequence, delivery.reply, wire(command)))
                return True

    async def _doubt(self, pending: _Pending, link: Link) -> None:
        """A server that answers a probe, but not this, may know nothing of the delivery any more.

        That one must not keep sends from starting; a dead link must, and so must a server that knows it and
        cannot settle it, as one without quorum, which goes on answering probes. Once the lease is over it
        has handed the message over again, or has it settled.
        """
        try:
            info = await self._probe(link)
        except BridgeError:
            return
        delivery = pending.delivery
        delivered = int(info.get("delivered", {}).get("stream_seq", 0))
        if delivered < delivery.id.sequence or self._clock() >= delivery.leased_until:
            self._uncount(pending)
        await asyncio.sleep(AGAIN_SECONDS)

    def supersede(self, sequence: int) -> None:
        """The sequence was handed over again: what is pending for the last hand-over is pointless."""
        pending = self._pending.get(sequence)
        if pending is not None:
            pending.drop()

    def discard(self) -> int:
        """The consumer is a new one: all handles are void. Returns how many were pending."""
        self.generation += 1
        self._confirmed.clear()
        dropped = list(self._pending.values())
        for pending in dropped:
            pending.drop()
        return len(dropped)

    async def repeat(self, link: Link, floor: int) -> None:
        """Say once more what was confirmed just before the connection was lost, above the ack floor.

        A server that was killed has forgotten it; without this the messages would stay out until ack_wait,
        and a relay that is stopped meanwhile would leave them to a next one, which would send them again.

        Raises:
            BridgeError: The link failed.
        """
        if not self._confirmed:
            return
        since = self._confirmed[-1][0] - REPEAT_WITHIN_SECONDS
        for at, sequence, reply, payload in list(self._confirmed):
            if at >= since and sequence > floor:
                await link.publish(reply, payload)

    async def extend(self, deliveries: list[Delivery], ack_wait_seconds: float) -> float | None:
        """Ask for a fresh ack_wait for all; the last is confirmed, and the server works in order.

        Returns the new end of the leases, counted from before the request; None when unconfirmed.
        """
        link = await self._link()
        asked_at = self._clock()
        # One that is sent late would extend what somebody else has by now.
        if any(d.generation != self.generation or d.leased_until <= asked_at for d in deliveries):
            return None
        try:
            for delivery in deliveries[:-1]:
                await link.publish(delivery.reply, b"+WPI")
            await link.request(deliveries[-1].reply, b"+WPI", timeout_seconds=CONFIRM_SECONDS)
        except BridgeError:
            return None
        return asked_at + ack_wait_seconds
