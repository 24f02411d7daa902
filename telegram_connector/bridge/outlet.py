"""Publishing with confirmation, over a connection that is made when it is first needed and anew when lost.

nats-py imports `nkeys`, and socket `encodings.idna`, only while they connect. A fork in that moment leaves
the child with an import lock that nobody will release (measured): both are imported here already.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TypeVar

import nkeys  # noqa: F401
from tenacity import AsyncRetrying, retry_if_exception, stop_never, wait_random_exponential

from telegram_connector.bridge.client import PublishAck, receipt
from telegram_connector.bridge.kv import NoBucket
from telegram_connector.bridge.link import REQUEST_SECONDS, ConnectError, Link, PermissionDenied
from telegram_connector.bridge.loop import LoopThread, result_or
from telegram_connector.bridge.store import Bucket
from telegram_connector.delivery import Versioned
from telegram_connector.envelope import MSG_ID_HEADER
from telegram_connector.errors import (
    STREAM_NOT_FOUND,
    ApiError,
    BridgeError,
    Disconnected,
    EnvelopeError,
    PublishFailed,
    Unanswered,
)
from telegram_connector.settings import NatsSettings

T = TypeVar("T")

THREAD_NAME = "nats-publisher"
GRACE_SECONDS = 1.0  # beyond a caller's budget, for the thread to say how it ended
BACKOFF_FIRST_SECONDS = 0.05
BACKOFF_CAP_SECONDS = 1.0
NOT_NOW = 503  # JetStream's code for no leader, no room, nobody there: what may pass by itself

_outlets: weakref.WeakSet[Outlet] = weakref.WeakSet()


@dataclass
class _Course:
    """What is known of one publish so far."""

    msg_id: str
    reason: str = "no connection to NATS in time (NATS_URL)"
    maybe_stored: bool = False

    def failure(self, reason: str = "") -> PublishFailed:
        return PublishFailed(self.msg_id, reason or self.reason, self.maybe_stored)


class Outlet:
    """One process's way to publish; any number of threads may use it. It must not be used over a fork.

    Args:
        settings: Where to, and as whom.
        name: What the server calls the connection.
    """

    def __init__(self, settings: NatsSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._lock = threading.Lock()
        self._loop = LoopThread(THREAD_NAME)
        self._started = False
        self._closed = False
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._retired: set[asyncio.Task[None]] = set()
        _outlets.add(self)

    def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> PublishAck:
        """Publish and wait for the receipt; what may pass is tried again, by the same id, in the budget.

        Raises:
            EnvelopeError: More bytes than the server takes.
            PublishFailed: No receipt.
        """
        course = _Course(headers[MSG_ID_HEADER])
        try:
            self.start()
        except Disconnected as error:
            raise course.failure(str(error)) from None
        future = self._loop.submit(self._publish(subject, payload, headers, timeout_seconds, course))
        try:
            return future.result(timeout_seconds + GRACE_SECONDS)
        except FutureTimeoutError:
            raise course.failure("the NATS thread did not answer") from None
        except (CancelledError, Disconnected):
            raise course.failure("the publisher was closed") from None
        finally:
            # The caller may have been interrupted: nothing is to be stored behind its back.
            future.cancel()

    def read(self, bucket: str, keys: Sequence[str], timeout_seconds: float) -> list[Versioned | None]:
        """What a key-value bucket has under each of the keys.

        Raises:
            BridgeError: It cannot be read.
        """

        async def ask(link: Link) -> list[Versioned | None]:
            there = Bucket(bucket, lambda: link)
            try:
                return list(await asyncio.gather(*map(there.read, keys)))
            except ApiError as error:
                raise NoBucket(bucket) if error.err_code == STREAM_NOT_FOUND else error from None

        return self._ask(ask, timeout_seconds)

    def write(self, bucket: str, key: str, value: bytes, revision: int, timeout_seconds: float) -> int:
        """Replace a revision of a key, 0 for nothing yet; returns the new one.

        Raises:
            RevisionMismatch: It has another one: somebody else's, or ours where an answer was lost.
            BridgeError: It was not written, or nobody said that it was.
        """
        return self._ask(
            lambda link: Bucket(bucket, lambda: link).write(key, value, revision), timeout_seconds
        )

    def _ask(self, what: Callable[[Link], Awaitable[T]], timeout_seconds: float) -> T:
        """Ask the server what does no harm twice; what may pass is tried again in the budget."""
        self.start()
        future = self._loop.submit(self._answer(what, timeout_seconds))
        try:
            return future.result(timeout_seconds + GRACE_SECONDS)
        except FutureTimeoutError:
            raise Unanswered("the NATS thread did not answer") from None
        except CancelledError:
            raise Disconnected("the publisher was closed") from None
        finally:
            future.cancel()

    async def _answer(self, what: Callable[[Link], Awaitable[T]], timeout_seconds: float) -> T:
        last = "no connection to NATS in time (NATS_URL)"

        def may_pass(error: BaseException) -> bool:
            nonlocal last
            if isinstance(error, BridgeError):
                last = _words(error)
            return not self._closed and _may_pass(error)

        async def once() -> T:
            link = await self._ready()
            try:
                return await what(link)
            except Unanswered:
                link.drop("a request was not answered")
                raise

        try:
            return await asyncio.wait_for(_tries(may_pass)(once), timeout_seconds)
        except asyncio.TimeoutError:
            raise Unanswered(last) from None

    def start(self) -> None:
        """Start the thread, as `publish` does otherwise; connecting waits for the first publish.

        Raises:
            Disconnected: Closed, or no thread can be started.
        """
        with self._lock:
            if self._closed:
                raise Disconnected("the publisher is closed")
            if not self._started:
                try:
                    self._loop.start()
                except RuntimeError as error:
                    raise Disconnected(str(error)) from None
                self._started = True

    async def _publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        timeout_seconds: float,
        course: _Course,
    ) -> PublishAck:
        def may_pass(error: BaseException) -> bool:
            if isinstance(error, BridgeError):  # and not the end of the budget, which comes as a cancellation
                course.reason = _words(error)
            return not self._closed and _may_pass(error)

        tries = _tries(may_pass)
        # Half of the budget at most for one answer: a connection that went dead in silence takes no more.
        answer_seconds = min(REQUEST_SECONDS, timeout_seconds / 2)
        try:
            return await asyncio.wait_for(
                tries(self._once, subject, payload, headers, answer_seconds, course), timeout_seconds
            )
        except (asyncio.TimeoutError, BridgeError):
            raise course.failure() from None

    async def _once(
        self, subject: str, payload: bytes, headers: Mapping[str, str], answer_seconds: float, course: _Course
    ) -> PublishAck:
        link = await self._ready()
        size = _size(payload, headers)
        if size > link.max_payload:
            raise EnvelopeError("", f"{size} bytes with its headers; the server takes {link.max_payload}")
        before, course.maybe_stored = course.maybe_stored, True
        try:
            answer = await link.request(subject, payload, headers=headers, timeout_seconds=answer_seconds)
            return receipt(answer.data)
        except (Disconnected, ApiError):
            course.maybe_stored = before
            raise
        except PermissionDenied as denied:
            if denied.subject == subject:  # else it is the way back of the receipt that was refused
                course.maybe_stored = before
            raise
        except Unanswered:
            link.drop("a publish was not answered")
            raise

    async def _ready(self) -> Link:
        """A live link; all who wait for one wait for the same."""
        if self._link is not None and self._link.alive:
            return self._link
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
            # Whoever waited may be gone by then.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Link:
        try:
            if self._link is not None:
                closing = asyncio.ensure_future(self._link.close())
                self._retired.add(closing)
                closing.add_done_callback(self._retired.discard)
                self._link = None
            self._link = await Link.open(self._settings, name=self._name)
            return self._link
        finally:
            self._opening = None

    def close(self, timeout_seconds: float) -> None:
        """Close within the budget; who waits for a receipt gets `PublishFailed`. Idempotent."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            self._closed = True
            if not self._started:
                return
        result_or(self._loop.submit(self._close()), timeout_seconds, None)
        self._loop.stop(max(0.0, deadline - time.monotonic()))

    async def _close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._link is not None:
            await self._link.close()
        if self._retired:
            await asyncio.wait(self._retired)

    def disown(self) -> None:
        """In a forked child: leave the connection to the parent."""
        if self._link is not None:
            self._link.disown()


def _tries(may_pass: Callable[[BaseException], bool]) -> AsyncRetrying:
    return AsyncRetrying(
        stop=stop_never,
        wait=wait_random_exponential(multiplier=BACKOFF_FIRST_SECONDS, max=BACKOFF_CAP_SECONDS),
        retry=retry_if_exception(may_pass),
        reraise=True,
    )


def _may_pass(error: BaseException) -> bool:
    """Whether trying again can help without anybody's doing."""
    if isinstance(error, ConnectError):
        return not error.operator_fault
    if isinstance(error, ApiError):
        return error.code == NOT_NOW
    return isinstance(error, BridgeError) and not isinstance(error, PermissionDenied | NoBucket)


def _words(error: BaseException) -> str:
    """What happened, and what to look at."""
    if isinstance(error, ApiError) and error.err_code == 0:
        return f"{error.description}: no stream takes it (TG_SUBJECT, or: telegram-connector provision)"
    if isinstance(error, PermissionDenied):
        return f"{error} (the permissions of our NATS user)"
    return str(error)


def _size(payload: bytes, headers: Mapping[str, str]) -> int:
    """What the server counts against its `max_payload`."""
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    return len("NATS/1.0\r\n\r\n") + lines + len(payload)


def _disown_all() -> None:
    # Else the server would see a connection that the parent has closed as open for as long as a child lives.
    for outlet in list(_outlets):
        with contextlib.suppress(OSError):
            outlet.disown()


os.register_at_fork(after_in_child=_disown_all)
