"""A short-lived blocking client for commands: publish and the JetStream API, no pulling."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from telegram_connector.bridge.link import REQUEST_SECONDS, Link, PermissionDenied
from telegram_connector.bridge.loop import LoopThread
from telegram_connector.bridge.store import Bucket
from telegram_connector.delivery import Versioned
from telegram_connector.errors import ApiError, Disconnected, Unanswered
from telegram_connector.settings import NatsSettings

T = TypeVar("T")
AT_ONCE = (
    64  # requests: as fast as more; 64 of the largest messages stay below what nats-py buffers (128 MiB)
)
ANNOUNCE_SECONDS = 0.25
OVER_SECONDS = 60.0


class PublishAck(NamedTuple):
    """JetStream's receipt: the message's sequence, and whether it was there already."""

    seq: int
    duplicate: bool


def receipt(answer: bytes) -> PublishAck:
    """Read what JetStream answers to a publish.

    Raises:
        ApiError: The stream refused it.
        Unanswered: It is no receipt: somebody else serves the subject.
    """
    try:
        document = json.loads(answer)
        if error := document.get("error"):
            raise ApiError(
                int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
            )
        return PublishAck(int(document["seq"]), bool(document.get("duplicate", False)))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise Unanswered("the answer is no receipt of JetStream's") from None


class NatsClient:
    """Connects on entry, closes on exit.

    Raises:
        ConnectError: On entry, when no server accepts us.
    """

    def __init__(self, settings: NatsSettings, name: str, timeout_seconds: float = REQUEST_SECONDS) -> None:
        self._settings = settings
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._loop = LoopThread("nats-client")
        self._link: Link | None = None

    def __enter__(self) -> NatsClient:
        self._loop.start()
        try:
            self._link = self._loop.submit(Link.open(self._settings, name=self._name)).result()
        except BaseException:
            self._loop.stop(1.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._link is not None:
            self._wait(self._loop.submit(self._link.close()))
        self._loop.stop(self._timeout_seconds)

    def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request to the JetStream API, e.g. ``STREAM.INFO.S``.

        Raises:
            ApiError: JetStream said no.
            BridgeError: No answer.
        """
        return self._wait(self._loop.submit(self._open().api(subject, body)))

    def api_each(self, subject: str, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | ApiError]:
        """Many requests to one subject of the JetStream API, some dozens at a time.

        Returns:
            The answers in the order of the requests, what JetStream said no to among them.

        Raises:
            BridgeError: No answer to one of them.
        """
        answers: list[dict[str, Any] | ApiError] = []
        for first in range(0, len(bodies), AT_ONCE):
            some = bodies[first : first + AT_ONCE]
            answers += self._wait(self._loop.submit(self._open().api_each(subject, some)))
        return answers

    def over(self, what: Callable[[Link], Coroutine[Any, Any, T]], seconds: float = OVER_SECONDS) -> T:
        """Have something done over the link; its requests end by themselves.

        Raises:
            BridgeError: As it raises.
        """
        future = self._loop.submit(what(self._open()))
        try:
            return future.result(seconds)
        except FutureTimeoutError:
            future.cancel()
            raise Unanswered("NATS is too slow to answer") from None

    def request(self, subject: str, payload: bytes = b"") -> bytes:
        """Ask whoever serves a subject.

        Raises:
            ApiError: Nobody serves it (503).
            BridgeError: No answer.
        """
        return bytes(self._wait(self._loop.submit(self._open().request(subject, payload))).data)

    def gather(self, subject: str, payload: bytes, seconds: float) -> list[bytes]:
        """Ask everybody who listens on a subject; see `Link.gather`.

        Raises:
            BridgeError: It could not be asked.
        """
        future = self._loop.submit(self._open().gather(subject, payload, seconds))
        try:
            return future.result(seconds + self._timeout_seconds)
        except FutureTimeoutError:
            raise Unanswered("the NATS thread did not answer") from None

    def announce_checked(self, subject: str, payload: bytes, seconds: float = ANNOUNCE_SECONDS) -> None:
        """As `announce`, and wait so long for the server to refuse it.

        Raises:
            PermissionDenied: The server refused it.
            BridgeError: It was not published.
        """
        self._wait(self._loop.submit(self._announce_checked(subject, payload, seconds)))

    async def _announce_checked(self, subject: str, payload: bytes, seconds: float) -> None:
        link = self._open()
        refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def denied(words: str) -> None:
            if not refused.done():
                refused.set_result(words)

        link.on_denied(subject, denied)
        try:
            await link.publish(subject, payload)
            # A refusal is all that comes back; without one there is only the time to wait for it.
            await asyncio.wait({refused}, timeout=seconds)
            if refused.done():
                raise PermissionDenied(refused.result())
        finally:
            link.off_denied(subject)

    @property
    def server(self) -> str:
        """Host and port that we are connected to, without credentials."""
        return self._open().server

    @property
    def pins(self) -> bool:
        """Whether the server knows pinned clients."""
        return self._open().pins

    @property
    def max_payload(self) -> int:
        """How many bytes of headers and body the server takes."""
        return self._open().max_payload

    @property
    def version(self) -> str:
        """The server's version."""
        return self._open().version

    def publish(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> PublishAck:
        """Publish to a stream and wait for its receipt.

        Raises:
            ApiError: No stream takes the subject (503), or the stream refused it.
            Unanswered: It may have been stored; publishing again with the same ``Nats-Msg-Id`` is safe.
            Disconnected: It was not stored.
        """
        answer = self._wait(self._loop.submit(self._open().request(subject, payload, headers=headers)))
        return receipt(answer.data)

    def announce(self, subject: str, payload: bytes) -> None:
        """Publish without a receipt; nobody need listen, and no stream is asked.

        Raises:
            Disconnected: Nothing was sent.
        """
        self._wait(self._loop.submit(self._open().publish(subject, payload)))

    # The seam `delivery.Records`, so that `links.Links` works over this connection.

    def read(self, bucket: str, key: str) -> Future[Versioned | None]:
        """What is stored under a key of a key-value bucket; None where there is nothing."""
        return self._loop.submit(Bucket(bucket, lambda: self._link).read(key))

    def write(self, bucket: str, key: str, value: bytes, revision: int | None) -> Future[int]:
        """Replace a revision of a key, None for whatever there is; resolves to the new one."""
        return self._loop.submit(Bucket(bucket, lambda: self._link).write(key, value, revision))

    def _open(self) -> Link:
        if self._link is None:
            raise Disconnected("used outside its with block")
        return self._link

    def _wait(self, future: Future[T]) -> T:
        try:
            return future.result(self._timeout_seconds + 5.0)
        except FutureTimeoutError:
            raise Unanswered("the NATS thread did not answer") from None
