"""The JetStream side of the relay as the blocking side sees it: `MessageSource`, `Store` and `Records`."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from nats.aio.msg import Msg

from telegram_connector.bridge.answering import Answering
from telegram_connector.bridge.beating import Beating
from telegram_connector.bridge.consumer import BoundConsumer
from telegram_connector.bridge.counting import Counting
from telegram_connector.bridge.link import Link
from telegram_connector.bridge.loop import LoopThread, result_or
from telegram_connector.bridge.settler import Settler
from telegram_connector.bridge.store import Bucket
from telegram_connector.bridge.supervisor import Supervisor
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import (
    Ack,
    Command,
    DeadLetter,
    Delivery,
    DeliveryId,
    Entry,
    Nak,
    Reset,
    Term,
    Versioned,
)
from telegram_connector.errors import NO_MESSAGE_FOUND, ApiError, BridgeError
from telegram_connector.events import Observer, ThreadDied
from telegram_connector.settings import NatsSettings

TICK_SECONDS = 0.5
CANCEL_AGAIN_SECONDS = 0.1


class JetStreamSource:
    """Implements `MessageSource`, `Store` and `Records` on a real server.

    Args:
        on_death: Called with the error when the bridge dies of a bug; the source is then useless.
        settling: Called with each settlement that is asked for, and what resolves when it is confirmed.
    """

    def __init__(
        self,
        settings: NatsSettings,
        observe: Observer,
        on_death: Callable[[BaseException], None],
        clock: LeaseClock | None = None,
        settling: Callable[[Delivery, Command, Future[bool]], None] = lambda _delivery, _command, _done: None,
    ) -> None:
        self._settings = settings
        self._observe = observe
        self._on_death = on_death
        self._settling = settling
        self.clock = clock or LeaseClock()
        self._loop = LoopThread("nats")
        self._deliveries: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._listener: Callable[[], None] = lambda: None
        self._asked_in_vain = True
        self._wanted = 0
        self._tick = self.clock()
        self._supervisor: Supervisor | None = None
        self._settler: Settler | None = None
        self._answering = Answering(
            f"{settings.status_subject}.{settings.durable}",
            lambda: self._supervisor.link if self._supervisor else None,
            observe,
        )
        self._beating = Beating(
            f"{settings.heartbeat_subject}.{settings.durable}",
            lambda: self._supervisor.link if self._supervisor else None,
            observe,
        )
        self._counting = Counting(
            settings.dead_stream, lambda: self._supervisor.link if self._supervisor else None, observe
        )
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    def start(self) -> None:
        """Start the thread; connecting and binding go on in the background, for ever if need be."""
        self._loop.start()
        self._loop.submit(self._start()).result()

    async def _start(self) -> None:
        self._supervisor = Supervisor(
            self._settings,
            self._observe,
            wanted=lambda: self._wanted,
            clock=self.clock,
            receive=self._receive,
            put=self._deliveries.put,
            renewed=self._renewed,
            resumed=self._resumed,
            changed=self._changed,
        )
        self._settler = Settler(
            self.clock,
            self._supervisor.wait_for_link,
            self._supervisor.probe,
            self._changed,
            self._supervisor.suspect,
            self._supervisor.graveyard.bury,
            self._supervisor.denied,
        )
        self._tasks = [
            asyncio.ensure_future(self._guard(self._supervisor.run)),
            asyncio.ensure_future(self._guard(self._keep_ticking)),
            asyncio.ensure_future(self._guard(self._answering.run)),
            asyncio.ensure_future(self._guard(self._counting.run)),
        ]

    async def _guard(self, work: Callable[[], object]) -> None:
        try:
            await work()  # type: ignore[misc]
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the relay must hear of it
            self._observe(ThreadDied("nats", error))
            self._on_death(error)

    async def _keep_ticking(self) -> None:
        # A delivery's lease is counted from the last tick before it was read: a process that was stopped
        # finds deliveries in its socket that somebody else may have by now.
        while True:
            self._tick = self.clock()
            await asyncio.sleep(TICK_SECONDS)

    def stop_pulling(self, timeout_seconds: float) -> None:
        self._wanted = 0
        if self._supervisor is not None:
            stopping = self._loop.submit(self._supervisor.stop_pulling(timeout_seconds))
            result_or(stopping, timeout_seconds + 0.5, None)

    def close(self, timeout_seconds: float) -> bool:
        """Save the ack floor, close the connection and end the thread; False when it did not end in time."""
        if self._supervisor is None:
            return True
        half = timeout_seconds / 2
        result_or(self._loop.submit(self._close(half)), half, None)
        return self._loop.stop(half)

    async def _close(self, timeout_seconds: float) -> None:
        assert self._supervisor is not None
        assert self._settler is not None
        with contextlib.suppress(BridgeError, asyncio.TimeoutError):
            await asyncio.wait_for(self._supervisor.save_floor(), timeout_seconds / 3)
        with contextlib.suppress(BridgeError, asyncio.TimeoutError):
            await asyncio.wait_for(self._supervisor.unpin(), timeout_seconds / 3)
        self._settler.discard()
        for task in self._tasks:
            task.cancel()
        while [task for task in self._tasks if not task.done()]:
            await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN_SECONDS)
            for task in self._tasks:
                task.cancel()  # nats-py may have swallowed the last one
        await self._supervisor.closed()

    # Status

    def on_request(self, answer: Callable[[bytes], bytes], listening: Callable[[], object]) -> None:
        """Have requests for the status answered; to be called before `start`.

        Args:
            answer: Makes an answer of a request; called on threads of its own, one at a time.
            listening: Called likewise once a connection is listened on: what was asked before went unheard.
        """
        self._answering.answer = answer
        self._answering.listening = listening

    @property
    def connected_seconds(self) -> float:
        """For about how long the connection stands; 0 without one."""
        return self._answering.connected_seconds

    @property
    def connected(self) -> bool:
        """Whether there is a connection with the consumer bound."""
        return self._supervisor is not None and self._supervisor.ready

    @property
    def backlog(self) -> int | None:
        """How many messages JetStream has handed to nobody yet, as last heard; None while not connected."""
        supervisor = self._supervisor
        return supervisor.pending if supervisor is not None and supervisor.ready else None

    @property
    def in_doubt(self) -> int | None:
        """How many messages in doubt wait for an operator, as last counted; None while that is not known."""
        return self._counting.count

    @property
    def round_trip_ago_seconds(self) -> float | None:
        """How long ago JetStream last answered about the consumer; None for never."""
        heard = self._supervisor.heard_at if self._supervisor else None
        return None if heard is None else time.monotonic() - heard

    @property
    def unread(self) -> int:
        """How many deliveries wait to be read."""
        return self._deliveries.qsize()

    def beat(self, heartbeat: bytes) -> bool:
        """Publish a heartbeat, for whoever listens; False where there is no connection for it."""
        if self.connected:
            self._loop.submit(self._beating.beat(heartbeat))
        return self.connected

    # MessageSource

    def next(self, timeout_seconds: float) -> Entry | None:
        try:
            entry = self._deliveries.get(timeout=max(0.0, timeout_seconds))
            while entry is None:  # a wake; what lies behind it must not wait for the next call
                entry = self._deliveries.get_nowait()
            return entry
        except queue.Empty:
            return None

    def wake(self) -> None:
        self._deliveries.put(None)

    def ack(self, delivery: Delivery) -> Future[bool]:
        return self._settle(delivery, Ack())

    def nak(self, delivery: Delivery, delay_seconds: float) -> Future[bool]:
        return self._settle(delivery, Nak(delay_seconds))

    def term(self, delivery: Delivery, reason: str, dead_letter: DeadLetter | None = None) -> Future[bool]:
        return self._settle(delivery, Term(reason, dead_letter))

    def keeps_dead_letters(self) -> bool:
        return self._supervisor is not None and self._supervisor.graveyard.exists

    def announce(self, event: bytes) -> None:
        self._loop.submit(self._announce(event))

    async def _announce(self, event: bytes) -> None:
        link = self._supervisor.link if self._supervisor else None
        if link is not None:
            with contextlib.suppress(BridgeError):
                await link.publish(self._settings.alert_subject, event)

    def max_age_seconds(self) -> float | None:
        bound = self._supervisor.bound if self._supervisor else None
        return bound.max_age_seconds if bound else None

    def _settle(self, delivery: Delivery, command: Command) -> Future[bool]:
        assert self._settler is not None
        self._settler.count()
        confirmed = self._loop.submit(self._settler.settle(delivery, command))
        self._settling(delivery, command, confirmed)
        return confirmed

    def extend(self, deliveries: Sequence[Delivery]) -> Future[float | None]:
        return self._loop.submit(self._extend(list(deliveries)))

    async def _extend(self, deliveries: list[Delivery]) -> float | None:
        assert self._settler is not None
        assert self._supervisor is not None
        bound = self._supervisor.bound
        if bound is None or not self._supervisor.ready:
            return None
        return await self._settler.extend(deliveries, bound.ack_wait_seconds)

    def present(self, sequence: int) -> Future[bool | None]:
        return self._loop.submit(self._present(sequence))

    async def _present(self, sequence: int) -> bool | None:
        link = self._supervisor.link if self._supervisor else None
        if link is None:
            return None
        try:
            await link.api(f"STREAM.MSG.GET.{self._settings.stream}", {"seq": sequence})
        except ApiError as error:
            return False if error.err_code == NO_MESSAGE_FOUND else None
        except BridgeError:
            return None
        return True

    def want(self, count: int) -> None:
        self._wanted = count
        pull = self._supervisor.pull if self._supervisor else None
        if count > 0 and pull is not None and not pull.live:
            self._loop.call(pull.poke)

    def may_send(self, workers: int) -> bool:
        if self._allowed(workers):
            return True
        self._asked_in_vain = True  # before looking again: a change in between is not lost
        return self._allowed(workers)

    def _allowed(self, workers: int) -> bool:
        supervisor, settler = self._supervisor, self._settler
        return (
            supervisor is not None
            and supervisor.may_send
            and settler is not None
            and settler.unconfirmed <= workers
        )

    def active(self) -> bool:
        supervisor = self._supervisor
        return supervisor is not None and supervisor.ready and supervisor.intake.pin.ours

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def ack_wait_seconds(self) -> float:
        bound = self._supervisor.bound if self._supervisor else None
        return bound.ack_wait_seconds if bound else self._settings.ack_wait_seconds

    def ack_floor(self) -> int:
        floor = self._supervisor.floors.floor if self._supervisor else None
        return floor.sequence if floor else 0

    # Store

    def get(self, key: str) -> Future[bytes | None]:
        """The value in the state bucket; None where there is none or no bucket."""
        assert self._supervisor is not None
        return self._loop.submit(self._supervisor.bucket.get(key))

    def put(self, key: str, value: bytes) -> Future[None]:
        """Write to the state bucket; nothing happens where there is no bucket."""
        assert self._supervisor is not None
        return self._loop.submit(self._supervisor.bucket.put(key, value))

    # Records

    def read(self, bucket: str, key: str) -> Future[Versioned | None]:
        return self._loop.submit(self._bucket(bucket).read(key))

    def write(self, bucket: str, key: str, value: bytes, revision: int | None) -> Future[int]:
        return self._loop.submit(self._bucket(bucket).write(key, value, revision))

    def _bucket(self, name: str) -> Bucket:
        assert self._supervisor is not None
        supervisor = self._supervisor
        return Bucket(name, lambda: supervisor.link)

    # Called on the asyncio thread

    def _receive(self, msg: Msg, bound: BoundConsumer) -> Delivery:
        assert self._settler is not None
        self._wanted -= 1
        id_, hand_over = parse_reply(msg.reply)
        self._settler.supersede(id_.sequence)
        return Delivery(
            id_,
            msg.data,
            msg.headers or {},
            msg.reply,
            hand_over,
            self._tick + bound.ack_wait_seconds,
            bound.max_deliver is not None and hand_over >= bound.max_deliver,
            self._settler.generation,
        )

    def _renewed(self, reason: str) -> None:
        assert self._settler is not None
        self._settler.discard()
        self._deliveries.put(Reset(reason))

    async def _resumed(self, link: Link, floor: int) -> None:
        assert self._settler is not None
        await self._settler.repeat(link, floor)

    def _changed(self) -> None:
        # Each confirmed ack comes by here; only who was told no waits for one.
        if self._asked_in_vain:
            self._asked_in_vain = False
            self._listener()


def parse_reply(reply: str) -> tuple[DeliveryId, int]:
    """The id and the number of the hand-over.

    From ``$JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer-sequence.timestamp.pending``.

    The timestamp is when the message was stored, in nanoseconds, the same at every hand-over; nats-py's own
    metadata sends it through a float.
    """
    tokens = reply.split(".")
    first = 2 if len(tokens) == 9 else 4
    stream, _, delivered, sequence, _, stored_at = tokens[first : first + 6]
    return DeliveryId(stream, int(sequence), int(stored_at)), int(delivered)
