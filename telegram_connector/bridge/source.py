"""The JetStream side of the relay: connects, binds, pulls and settles for ever, on the asyncio thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from nats.aio.msg import Msg
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_never
from tenacity import wait_exponential_jitter as exponential_jitter

from telegram_connector.bridge.consumer import (
    CONSUMER_NOT_FOUND,
    STREAM_NOT_FOUND,
    BindError,
    BoundConsumer,
    Floor,
    bind,
)
from telegram_connector.bridge.link import ConnectError, Link
from telegram_connector.bridge.loop import LoopThread, result_or
from telegram_connector.bridge.pull import ConsumerGoneError, Pull
from telegram_connector.bridge.settler import Settler
from telegram_connector.bridge.store import Bucket
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Ack, Command, Delivery, DeliveryId, Nak, Reset, Term
from telegram_connector.errors import ApiError, BridgeError, Unanswered
from telegram_connector.events import (
    BindFailed,
    Connected,
    ConnectFailed,
    ConnectionLost,
    ConsumerGone,
    Observer,
    StateUnavailable,
)
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import STATE_BUCKET

RETRY_FIRST_SECONDS = 0.1
RETRY_CAP_SECONDS = 5.0
PROBE_SECONDS = 5.0
PROBE_TIMEOUT_SECONDS = 2.0
TICK_SECONDS = 0.5
SAVE_FLOOR_SECONDS = 10.0
FLOOR_KEY = "ack_floor"


class JetStreamSource:
    """Implements `MessageSource` and `Store` on a real server.

    Args:
        on_death: Called with the error when the supervisor dies of a bug; the source is then useless.
    """

    def __init__(
        self,
        settings: NatsSettings,
        observe: Observer,
        on_death: Callable[[BaseException], None],
        clock: LeaseClock | None = None,
    ) -> None:
        self._settings = settings
        self._observe = observe
        self._on_death = on_death
        self.clock = clock or LeaseClock()
        self._loop = LoopThread("nats")
        self._deliveries: queue.SimpleQueue[Delivery | Reset | None] = queue.SimpleQueue()
        self._listener: Callable[[], None] = lambda: None
        self._link: Link | None = None
        self._bound: BoundConsumer | None = None
        self._pull: Pull | None = None
        self._wanted = 0
        self._floor: Floor | None = None
        self._saved_floor: Floor | None = None
        self._saved_at = float("-inf")
        self._bucket = Bucket(STATE_BUCKET, lambda: self._link)
        self._bucket_usable = False
        self._bucket_said = ""
        self._said: tuple[str, str] | None = None
        self._tick = self.clock()
        self._stopping = False
        self._supervisor: Future[None] | None = None
        self._closers: set[asyncio.Task[None]] = set()
        self._have_link: asyncio.Event | None = None
        self._settler: Settler | None = None

    # Life

    def start(self) -> None:
        """Start the thread; connecting and binding go on in the background, for ever if need be."""
        self._loop.start()
        self._supervisor = self._loop.submit(self._supervise())

    def close(self, timeout_seconds: float) -> bool:
        """Save the ack floor, close the connection and end the thread; False when it did not end in time."""
        self._stopping = True
        half = timeout_seconds / 2
        result_or(self._loop.submit(self._close(half)), half, None)
        return self._loop.stop(half)

    async def _close(self, timeout_seconds: float) -> None:
        with contextlib.suppress(BridgeError, asyncio.TimeoutError):
            await asyncio.wait_for(self._save_floor_now(), timeout_seconds / 2)
        if self._supervisor is not None:
            self._supervisor.cancel()
        if self._settler is not None:
            self._settler.discard()
        if self._link is not None:
            await self._link.close()
        if self._closers:
            await asyncio.wait(self._closers, timeout=timeout_seconds / 2)

    # MessageSource, from any thread

    def next(self, timeout_seconds: float) -> Delivery | Reset | None:
        try:
            return self._deliveries.get(timeout=max(0.0, timeout_seconds))
        except queue.Empty:
            return None

    def wake(self) -> None:
        self._deliveries.put(None)

    def ack(self, delivery: Delivery) -> Future[bool]:
        return self._settle(delivery, Ack())

    def nak(self, delivery: Delivery, delay_seconds: float) -> Future[bool]:
        return self._settle(delivery, Nak(delay_seconds))

    def term(self, delivery: Delivery, reason: str) -> Future[bool]:
        return self._settle(delivery, Term(reason))

    def extend(self, deliveries: Sequence[Delivery]) -> Future[float | None]:
        return self._loop.submit(self._extend(list(deliveries)))

    def present(self, sequence: int) -> Future[bool | None]:
        return self._loop.submit(self._present(sequence))

    def want(self, count: int) -> None:
        self._wanted = count
        pull = self._pull
        if count > 0 and pull is not None and not pull.live:
            self._loop.call(pull.poke)

    def may_send(self, workers: int) -> bool:
        link, settler = self._link, self._settler
        return (
            link is not None
            and self._bound is not None
            and link.alive
            and settler is not None
            and settler.unconfirmed <= workers
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def ack_floor(self) -> int:
        return self._floor.sequence if self._floor else 0

    def stop_pulling(self, timeout_seconds: float) -> None:
        self._stopping = True
        result_or(self._loop.submit(self._stop_pulling(timeout_seconds)), timeout_seconds + 0.5, None)

    # Store, from any thread

    def get(self, key: str) -> Future[bytes | None]:
        """The value in the state bucket; None where there is none or the bucket is missing."""
        return self._loop.submit(self._state_get(key))

    def put(self, key: str, value: bytes) -> Future[None]:
        """Write to the state bucket; nothing happens where the bucket is missing."""
        return self._loop.submit(self._state_put(key, value))

    # On the loop: supervising

    async def _supervise(self) -> None:
        self._have_link = asyncio.Event()
        self._settler = Settler(self.clock, self._wait_for_link, self._probe, self._changed)
        ticking = asyncio.ensure_future(self._keep_ticking())
        try:
            while not self._stopping:
                link = await self._connect()
                try:
                    await self._serve(link)
                except BridgeError as error:
                    link.drop(str(error))
                finally:
                    await self._discard(link)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_death(error)
            raise
        finally:
            ticking.cancel()

    async def _connect(self) -> Link:
        async def once() -> Link:
            return await Link.open(
                self._settings,
                name=f"telegram_connector {self._settings.durable}",
                inbox_prefix=f"_INBOX.{self._settings.durable}",
            )

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, ConnectError) and self._news(error.cause, error.setting):
                self._observe(ConnectFailed(error.cause, error.setting, error.operator_fault))

        link: Link = await self._retry(once, report)
        self._said = None
        self._observe(Connected(link.server, link.version))
        return link

    async def _serve(self, link: Link) -> None:
        """Bind and pull over the link until it is lost; binds anew when the consumer goes."""
        self._link = link
        await self._open_bucket()
        losing = asyncio.ensure_future(link.lost.wait())
        try:
            while not self._stopping and link.alive:
                await self._bind(link)
                self._changed()
                working = [
                    asyncio.ensure_future(self._pull_for_ever(link)),
                    asyncio.ensure_future(self._watch(link)),
                ]
                try:
                    await asyncio.wait({*working, losing}, return_when=asyncio.FIRST_COMPLETED)
                    for task in working:
                        if task.done():
                            task.result()
                except ConsumerGoneError as gone:
                    self._observe(ConsumerGone(str(gone)))
                finally:
                    self._pull = None
                    for task in working:
                        task.cancel()
                    await asyncio.gather(*working, return_exceptions=True)
        finally:
            losing.cancel()

    async def _bind(self, link: Link) -> None:
        async def once() -> BoundConsumer:
            if not link.alive:
                raise _LinkLostError(link.lost_reason)
            if self._floor is None:
                self._floor = await self._load_floor()
            return await bind(link, self._settings, self._floor, self._observe)

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, BindError) and self._news(error.cause, error.setting):
                self._observe(BindFailed(error.cause, error.setting, error.operator_fault))

        bound = await self._retry(once, report, unless=_LinkLostError)
        self._said = None
        last = self._bound
        if last is not None and last.created != bound.created:
            assert self._settler is not None
            self._settler.discard()
            same_stream = last.stream_created == bound.stream_created
            what = "the consumer was made anew" if same_stream else "the stream was made anew"
            self._deliveries.put(Reset(what))
            if not same_stream:
                self._floor = None
        self._bound = bound
        self._note_floor(bound.info)
        assert self._have_link is not None
        self._have_link.set()

    async def _discard(self, link: Link) -> None:
        if self._have_link is not None:
            self._have_link.clear()
        self._link = None
        if not self._stopping:
            self._observe(ConnectionLost(link.lost_reason or "lost"))
        # Closing may hang with the peer; the next connection does not wait for it.
        task = asyncio.ensure_future(link.close())
        self._closers.add(task)
        task.add_done_callback(self._closers.discard)

    async def _retry(
        self,
        once: Callable[[], Coroutine[Any, Any, Any]],
        report: Callable[[RetryCallState], None],
        unless: type[Exception] | None = None,
    ) -> Any:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(BridgeError),
            wait=exponential_jitter(RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, 2, RETRY_FIRST_SECONDS),
            stop=stop_never,
            before_sleep=report,
            reraise=True,
        )
        if unless is not None:
            retrying = retrying.copy(
                retry=lambda state: (
                    state.outcome is not None
                    and isinstance(state.outcome.exception(), BridgeError)
                    and not isinstance(state.outcome.exception(), unless)
                )
            )
        return await retrying(once)

    def _news(self, cause: str, setting: str) -> bool:
        """Whether this differs from what was last reported: a repeating failure is said on change."""
        if self._said == (cause, setting):
            return False
        self._said = (cause, setting)
        return True

    async def _keep_ticking(self) -> None:
        # A delivery's lease is counted from the last tick before it was read: a process that was stopped
        # finds deliveries in its socket that somebody else may have by now.
        while True:
            self._tick = self.clock()
            await asyncio.sleep(TICK_SECONDS)

    # On the loop: pulling

    async def _pull_for_ever(self, link: Link) -> None:
        self._pull = Pull(
            link, self._settings.stream, self._settings.durable, lambda: self._wanted, self._deliver
        )
        await self._pull.run()

    def _deliver(self, msg: Msg) -> None:
        assert self._bound is not None
        assert self._settler is not None
        self._wanted -= 1
        id_, hand_over = parse_reply(msg.reply)
        self._settler.supersede(id_.sequence)
        limit = self._bound.max_deliver
        self._deliveries.put(
            Delivery(
                id_,
                msg.data,
                msg.headers or {},
                msg.reply,
                hand_over,
                self._tick + self._bound.ack_wait_seconds,
                limit is not None and hand_over >= limit,
            )
        )

    async def _stop_pulling(self, timeout_seconds: float) -> None:
        pull = self._pull
        if pull is not None:
            await pull.close(timeout_seconds)

    async def _watch(self, link: Link) -> None:
        """Probe the consumer; a client that twice gets no answer is thrown away."""
        silent = 0
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                info = await self._probe(link)
            except ApiError as error:
                silent = 0
                if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                    raise ConsumerGoneError(str(error)) from None
                continue  # leaderless for now
            except Unanswered as error:
                silent += 1
                if silent >= 2:
                    link.drop(str(error))
                    return
                continue
            silent = 0
            assert self._bound is not None
            if str(info["created"]) != self._bound.created:
                raise ConsumerGoneError("the consumer was made anew by somebody else")
            self._note_floor(info)
            if self.clock() - self._saved_at >= SAVE_FLOOR_SECONDS:
                with contextlib.suppress(BridgeError):
                    await self._save_floor()

    async def _probe(self, link: Link) -> dict[str, Any]:
        return await link.api(
            f"CONSUMER.INFO.{self._settings.stream}.{self._settings.durable}",
            timeout_seconds=PROBE_TIMEOUT_SECONDS,
        )

    # On the loop: settling

    def _settle(self, delivery: Delivery, command: Command) -> Future[bool]:
        settler = self._settler
        if settler is None:
            never: Future[bool] = Future()
            never.set_result(False)
            return never
        settler.count()
        return self._loop.submit(settler.settle(delivery, command))

    async def _extend(self, deliveries: list[Delivery]) -> float | None:
        if self._settler is None or self._bound is None or not deliveries:
            return None
        return await self._settler.extend(deliveries, self._bound.ack_wait_seconds)

    async def _present(self, sequence: int) -> bool | None:
        link = self._link
        if link is None:
            return None
        try:
            await link.api(f"STREAM.MSG.GET.{self._settings.stream}", {"seq": sequence})
        except ApiError as error:
            return None if error.code == 503 else False
        except BridgeError:
            return None
        return True

    async def _wait_for_link(self) -> Link:
        assert self._have_link is not None
        while True:
            link = self._link
            if link is not None and link.alive and self._have_link.is_set():
                return link
            self._have_link.clear()
            await self._have_link.wait()

    def _changed(self) -> None:
        self._listener()

    # On the loop: the state bucket and the ack floor

    async def _open_bucket(self) -> None:
        reason = ""
        try:
            self._bucket_usable = await self._bucket.exists()
            if not self._bucket_usable:
                reason = f"bucket {STATE_BUCKET} does not exist; make it with: telegram-connector provision"
        except ApiError as error:
            self._bucket_usable, reason = False, str(error)
        except BridgeError as error:
            self._bucket_usable, reason = False, f"bucket {STATE_BUCKET}: {error}"
        if reason and reason != self._bucket_said:
            self._observe(StateUnavailable(reason))
        self._bucket_said = reason

    async def _state_get(self, key: str) -> bytes | None:
        return await self._bucket.get(key) if self._bucket_usable else None

    async def _state_put(self, key: str, value: bytes) -> None:
        if self._bucket_usable:
            await self._bucket.put(key, value)

    async def _load_floor(self) -> Floor | None:
        raw = await self._state_get(FLOOR_KEY)
        if not raw:
            return None
        try:
            document = json.loads(raw)[self._key()]
            return Floor(str(document["stream_created"]), int(document["sequence"]))
        except (ValueError, KeyError, TypeError):
            return None

    def _key(self) -> str:
        return f"{self._settings.stream}/{self._settings.durable}"

    def _note_floor(self, info: dict[str, Any]) -> None:
        assert self._bound is not None
        sequence = int(info.get("ack_floor", {}).get("stream_seq", 0))
        if (
            self._floor is None
            or self._floor.stream_created != self._bound.stream_created
            or sequence > self._floor.sequence
        ):
            self._floor = Floor(self._bound.stream_created, sequence)

    async def _save_floor_now(self) -> None:
        """At a clean stop the freshest floor is asked for: a durable that vanishes then repeats nothing."""
        link = self._link
        if link is not None and self._bound is not None and link.alive:
            self._note_floor(await self._probe(link))
            await self._save_floor()

    async def _save_floor(self) -> None:
        floor = self._floor
        if floor is None or floor == self._saved_floor:
            return
        document = {self._key(): {"stream_created": floor.stream_created, "sequence": floor.sequence}}
        await self._state_put(FLOOR_KEY, json.dumps(document).encode())
        self._saved_floor = floor
        self._saved_at = self.clock()


class _LinkLostError(BridgeError):
    """The link went while binding: a new one is needed, not another try."""


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
