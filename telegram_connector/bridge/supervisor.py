"""What keeps the bridge alive on the asyncio thread: connect, bind, pull, watch, and again from the start.

tenacity owns the waits between tries. Each connection gets a new client (see `link`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from nats.aio.msg import Msg
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_never,
    wait_exponential,
    wait_random,
)

from telegram_connector.bridge.consumer import BindError, BoundConsumer, bind
from telegram_connector.bridge.floor import FloorKeeper
from telegram_connector.bridge.graveyard import Graveyard
from telegram_connector.bridge.intake import Intake
from telegram_connector.bridge.link import ConnectError, Link, PermissionDenied
from telegram_connector.bridge.pull import ConsumerGoneError, Pull
from telegram_connector.bridge.store import Bucket
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Delivery, Entry
from telegram_connector.errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, ApiError, BridgeError, Unanswered
from telegram_connector.events import (
    BindFailed,
    Connected,
    ConnectFailed,
    ConnectionLost,
    ConsumerGone,
    Observer,
    RemovedUnseen,
    StandbyUnsupported,
    StateUnavailable,
)
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import STATE_BUCKET

RETRY_FIRST_SECONDS = 0.1
RETRY_CAP_SECONDS = 5.0
STEADY_SECONDS = 10.0  # a link that was lost sooner than that is not followed by the next at once
STANDBY_STEPS_BACK_SECONDS = 2.0
CANCEL_AGAIN_SECONDS = 0.1
PROBE_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 1.0
PROBE_TIMEOUT_SECONDS = 2.0
PROBES_PER_SAVE = 2  # the ack floor is saved every 10 s

T = TypeVar("T")


class _LinkLostError(BridgeError):
    """The link went while something else was tried: that takes a new link, not another try."""


class Supervisor:
    """Keeps one link, one bound consumer and one pull, for ever.

    Args:
        wanted: How many deliveries are wanted now.
        clock: The leases' clock.
        receive: Makes a delivery of a message and the consumer it is from.
        put: Called with each delivery, and what it is to be preceded by, in order.
        renewed: Called with the reason when the consumer is a new one: all handles from before are void.
        resumed: Called with the link and the ack floor when the consumer is the one from before.
        changed: Called when sends may have become possible.
    """

    def __init__(
        self,
        settings: NatsSettings,
        observe: Observer,
        *,
        wanted: Callable[[], int],
        clock: LeaseClock,
        receive: Callable[[Msg, BoundConsumer], Delivery],
        put: Callable[[Entry], None],
        renewed: Callable[[str], None],
        resumed: Callable[[Link, int], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._observe = observe
        self._wanted = wanted
        self._renewed = renewed
        self._resumed = resumed
        self._changed = changed
        self._said: tuple[str, str] | None = None
        self._bucket_said = ""
        self._closers: set[asyncio.Task[None]] = set()
        self._serving = asyncio.Event()
        self._suspected = asyncio.Event()
        self._removed = 0  # up to here, what the stream lost has been reported
        self.link: Link | None = None
        self.bound: BoundConsumer | None = None
        self.pull: Pull | None = None
        self.bucket = Bucket(STATE_BUCKET, lambda: self.link)
        self.floors = FloorKeeper(self.bucket, f"{settings.stream}.{settings.durable}")
        self.graveyard = Graveyard(settings, observe, self.wait_for_link)
        self.intake = Intake(
            settings,
            clock,
            link=lambda: self.link,
            receive=receive,
            put=put,
            repeat_acks=lambda link: resumed(link, 0),
            changed=changed,
        )
        self._said_unsupported = False
        self.pending = 0  # messages handed over to nobody yet, as last heard
        self.heard_at: float | None = None  # when that was, in monotonic seconds

    @property
    def may_send(self) -> bool:
        """Whether a send may start, as far as the server is concerned."""
        return self.ready and self.intake.pin.sure and self.intake.clear

    @property
    def ready(self) -> bool:
        """Whether there is a live link with a bound consumer."""
        return self.link is not None and self.link.alive and self._serving.is_set()

    async def run(self) -> None:
        """Serve until cancelled."""
        short_lived = 0
        while True:
            link = await self._connect()
            connected_at = asyncio.get_running_loop().time()
            self.link = link
            try:
                await self._open_bucket()
                await self.graveyard.look(link)
                await self._serve(link)
            except BridgeError as error:
                link.drop(str(error))
            finally:
                self._serving.clear()
                self.link = None
                self.intake.pin.doubt()
                # Closing may hang with the peer; the next connection does not wait for it.
                closing = asyncio.ensure_future(link.close())
                self._closers.add(closing)
                closing.add_done_callback(self._closers.discard)
            self._observe(ConnectionLost(link.lost_reason))
            # A server that lets us in and throws us out again must not be stormed. The first time costs
            # nothing: a server that was restarted is back at once.
            steady = asyncio.get_running_loop().time() - connected_at >= STEADY_SECONDS
            short_lived = 0 if steady else short_lived + 1
            if short_lived > 1:
                await asyncio.sleep(min(RETRY_FIRST_SECONDS * 2.0 ** min(short_lived, 16), RETRY_CAP_SECONDS))

    async def wait_for_link(self) -> Link:
        """The live link, as soon as there is one with a bound consumer."""
        while True:
            link = self.link
            if link is not None and self.ready:
                return link
            if link is None or not link.alive:
                self._serving.clear()  # set for a link that has gone since
            await self._serving.wait()

    async def stop_pulling(self, timeout_seconds: float) -> None:
        """Ask for no more, and wait for what is on its way."""
        if self.pull is not None:
            await self.pull.close(timeout_seconds)

    async def save_floor(self) -> None:
        """Save the freshest ack floor: should the durable vanish, the next process repeats nothing.

        Raises:
            BridgeError: It was not saved.
        """
        link = self.link
        if link is not None and self.ready and self.bound is not None:
            self.floors.note(self.bound.stream_created, await self.probe(link))
            await self.floors.save()

    async def closed(self) -> None:
        """Wait until the links are closed; `run` must have been cancelled."""
        if self._closers:
            await asyncio.wait(self._closers)

    async def probe(self, link: Link) -> dict[str, Any]:
        """Ask for the consumer's info: the round trip that tells a live server from a dead one.

        Raises:
            BridgeError: No answer, or a refusal.
        """
        where = f"{self._settings.stream}.{self._settings.durable}"
        info = await link.api(f"CONSUMER.INFO.{where}", timeout_seconds=PROBE_TIMEOUT_SECONDS)
        self._hear(info)
        return info

    def _hear(self, info: dict[str, Any]) -> None:
        self.pending = int(info.get("num_pending", 0))
        self.heard_at = time.monotonic()

    async def _look_for_removed(self, link: Link) -> None:
        """Report messages that the stream has lost without ever handing them over.

        Raises:
            BridgeError: The stream did not answer.
        """
        if self.bound is None:
            return
        info = await link.api(f"STREAM.INFO.{self._settings.stream}")
        if str(info["created"]) == self.bound.stream_created:
            self._note_first(int(info["state"]["first_seq"]))

    def _note_first(self, first_sequence: int) -> None:
        first = max(self.intake.received, self._removed) + 1
        if first_sequence > first:
            self._removed = first_sequence - 1
            self._observe(RemovedUnseen(first, first_sequence - 1))

    def suspect(self) -> None:
        """Something was not served: look soon whether the consumer is still there."""
        self._suspected.set()

    # Connecting and binding

    async def _connect(self) -> Link:
        async def once() -> Link:
            return await Link.open(self._settings, name=f"telegram_connector {self._settings.durable}")

        link = await self._retried(once)
        self._observe(Connected(link.server, link.version))
        return link

    async def _open_bucket(self) -> None:
        reason = await self.bucket.open()
        if reason and reason != self._bucket_said:
            self._observe(StateUnavailable(reason))
        self._bucket_said = reason

    async def _bind(self, link: Link) -> None:
        async def once() -> BoundConsumer:
            if not link.alive:
                raise _LinkLostError(link.lost_reason)
            return await bind(link, self._settings, self.floors.load, self._observe)

        bound = await self._retried(once)
        last, self.bound = self.bound, bound
        was_active = self.intake.pin.holds
        if last is None or last.stream_created != bound.stream_created:
            # A purge moves the consumer along, so what an earlier process saved counts first.
            with contextlib.suppress(BridgeError):
                await self.floors.load()
            floor = self.floors.floor
            same = floor is not None and floor.stream_created == bound.stream_created
            self.intake.received = floor.sequence if floor and same else bound.delivered
            # What went before there was a consumer is not ours to miss.
            self._removed = bound.first_sequence - 1 if bound.from_start else 0
        self.floors.note(bound.stream_created, bound.info)
        self._hear(bound.info)
        self._note_first(bound.first_sequence)
        same = last is not None and last.stream_created == bound.stream_created
        if last is not None and (bound.new or not same or not last.made_at(bound.created)):
            was_active = was_active or self.intake.pin.holds
            self.intake.forget()
            self._renewed("the consumer was made anew" if same else "the stream was made anew")
        elif last is not None:
            await self._resumed(link, int(bound.info.get("ack_floor", {}).get("stream_seq", 0)))
        await self.intake.bind(link, bound, first=last is None)
        if not bound.group and not self._said_unsupported:
            self._said_unsupported = True
            self._observe(StandbyUnsupported(link.version))
        self._serving.set()
        self._changed()
        if last is not None and bound.group and not was_active:
            # A killed server forgets who was pinned and what it had handed over. Whoever was active comes
            # first, so that what it has in hand stays with it.
            await asyncio.sleep(min(STANDBY_STEPS_BACK_SECONDS, self._settings.takeover_seconds / 2))

    async def _retried(self, once: Callable[[], Coroutine[Any, Any, T]]) -> T:
        def again(error: BaseException) -> bool:
            return isinstance(error, BridgeError) and not isinstance(error, _LinkLostError)

        retrying = AsyncRetrying(
            retry=retry_if_exception(again),
            wait=wait_exponential(RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS)
            + wait_random(0, RETRY_FIRST_SECONDS),
            stop=stop_never,
            before_sleep=self._report,
            reraise=True,
        )
        result: T = await retrying(once)
        self._said = None
        return result

    def _report(self, state: RetryCallState) -> None:
        """Say why a try failed, when that is news: a repeating failure is said on change."""
        error = state.outcome.exception() if state.outcome else None
        match error:
            case ConnectError():
                self._say(ConnectFailed(error.cause, error.setting, error.operator_fault))
            case BindError():
                self._say(BindFailed(error.cause, error.setting, error.operator_fault))
            case PermissionDenied():
                self.denied(error)
            case BridgeError():
                self._say(BindFailed(str(error), "NATS_URL", False))

    def denied(self, error: PermissionDenied) -> None:
        """A right is missing that the relay cannot do without."""
        subject = error.subject
        if subject.startswith("$JS.ACK."):  # without what changes from message to message
            subject = ".".join(subject.split(".")[:4]) + ".>"
        cause = f"NATS permission missing for {subject}"
        self._say(BindFailed(cause, "the worker's NATS permissions", True))

    def _refused(self, words: str) -> None:
        if "permissions violation" in words.lower():
            self.denied(PermissionDenied(words))
        else:
            cause = f"consumer {self._settings.durable} does not serve us: {words}"
            self._say(BindFailed(cause, "TG_DURABLE_NAME", True))

    def _say(self, failed: ConnectFailed | BindFailed) -> None:
        if self._said != (failed.cause, failed.setting):
            self._said = (failed.cause, failed.setting)
            self._observe(failed)

    # Serving

    async def _serve(self, link: Link) -> None:
        """Pull over the link until it is lost; bind anew when the consumer goes."""
        losing = asyncio.ensure_future(link.lost.wait())
        try:
            while link.alive:
                await self._bind(link)
                self.pull = Pull(
                    link,
                    self.intake.pin,
                    self._settings.stream,
                    self._settings.durable,
                    self._wanted,
                    self.intake.deliver,
                    self.suspect,
                    self._refused,
                )
                working = [asyncio.ensure_future(self.pull.run()), asyncio.ensure_future(self._watch(link))]
                try:
                    await asyncio.wait({*working, losing}, return_when=asyncio.FIRST_COMPLETED)
                    for task in working:
                        if task.done():
                            task.result()
                except ConsumerGoneError as gone:
                    self._serving.clear()
                    self._observe(ConsumerGone(str(gone)))
                finally:
                    self.pull = None
                    while [task for task in working if not task.done()]:
                        for task in working:
                            task.cancel()  # nats-py swallows one that meets it in a forced flush
                        await asyncio.wait(working, timeout=CANCEL_AGAIN_SECONDS)
                    await asyncio.gather(*working, return_exceptions=True)
        finally:
            losing.cancel()

    async def unpin(self) -> None:
        """Hand over at once to whoever waits; only after everything is settled or given back.

        Raises:
            BridgeError: The server did not say that it was done.
        """
        if self.link is not None and self.ready and self.intake.pin.group and self.intake.pin.ours:
            where = f"{self._settings.stream}.{self._settings.durable}"
            await self.link.api(f"CONSUMER.UNPIN.{where}", {"group": self.intake.pin.group})

    async def _watch(self, link: Link) -> None:
        """Probe the consumer now and then; a client that twice gets no answer is thrown away."""
        probes = 0
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                pause = LOOK_AGAIN_SECONDS if self.intake.lacks else PROBE_SECONDS
                await asyncio.wait_for(self._suspected.wait(), pause)
            self._suspected.clear()
            try:
                answered = await self._check(link) or await self._check(link)
            except ApiError:
                continue  # leaderless for now
            if not answered:
                link.drop("the server does not answer")
                return
            probes += 1
            if probes % PROBES_PER_SAVE == 0:
                await self._save_floor()
                with contextlib.suppress(BridgeError):
                    await self._look_for_removed(link)
                if not self.bucket.usable:
                    await self._open_bucket()
                if not self.graveyard.exists:
                    await self.graveyard.look(link)

    async def _save_floor(self) -> None:
        try:
            await self.floors.save()
        except BridgeError as error:
            reason = f"the ack floor cannot be written: {error}"
            if reason != self._bucket_said:
                self._observe(StateUnavailable(reason))
            self._bucket_said = reason

    async def _check(self, link: Link) -> bool:
        """Probe once and note the ack floor; False when there was no answer.

        Raises:
            ConsumerGoneError: There is no such consumer, or another one by its name.
            ApiError: JetStream cannot say for now.
        """
        try:
            info = await self.probe(link)
        except Unanswered:
            return False
        except ApiError as error:
            if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                raise ConsumerGoneError(str(error)) from None
            raise
        assert self.bound is not None
        if not self.bound.made_at(str(info["created"])):
            raise ConsumerGoneError("somebody else made the consumer anew")
        self.floors.note(self.bound.stream_created, info)
        self.intake.look(info)
        return True
