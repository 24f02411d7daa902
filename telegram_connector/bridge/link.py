"""One connection to NATS: made once, used until it is lost, then thrown away for a new one.

nats-py's own reconnecting is off. It can end in a client that says it is connected and is not (a callback
that raised, a late PONG, an -ERR), and pulls issued meanwhile all fire at once afterwards (measured). A new
client for each connection has none of that; `source` owns when to make one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from telegram_connector.errors import ApiError, BridgeError, Disconnected, Unanswered
from telegram_connector.settings import NatsSettings

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 5.0
CLOSE_SECONDS = 2.0
FLUSH_SECONDS = 2.0  # a dead connection must be noticed well before the pin is over
PING_SECONDS = 10  # twice unanswered: closed after at most 30 s, where nats-py's default takes 6 minutes


class ConnectError(BridgeError):
    """Raised when no connection could be made.

    Attributes:
        cause: What happened, in words, without credentials.
        setting: The variable to look at.
        operator_fault: Whether only a change by the operator can help.
    """

    def __init__(self, cause: str, setting: str, operator_fault: bool) -> None:
        self.cause = cause
        self.setting = setting
        self.operator_fault = operator_fault
        super().__init__(f"{cause} ({setting})")


class PermissionDenied(Unanswered):
    """Raised when a request stays unanswered because the server refused to let it through.

    Attributes:
        subject: What we may not publish or subscribe to.
    """

    def __init__(self, words: str) -> None:
        self.subject = words.split('"')[1] if words.count('"') >= 2 else words
        super().__init__(words)


class Link:
    """A live connection. `lost` is set once it is not, whatever nats-py believes."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.lost_reason = ""
        self._client = Client()
        self._errors: list[BaseException] = []
        self._inbox = ""
        self._tokens = itertools.count(1)
        self._asked: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        self._deniable: dict[str, Callable[[str], None]] = {}

    @classmethod
    async def open(cls, settings: NatsSettings, *, name: str) -> Link:
        """Connect once to the first server that answers.

        Answers come to ``_INBOX.<durable>.>``: within what users who may subscribe to ``_INBOX.>`` have, and
        all that the worker's least-privilege user has.

        Raises:
            ConnectError: None did, or the credentials are wrong.
        """
        link = cls()
        try:
            await asyncio.wait_for(
                link._client.connect(
                    **link._options(settings),
                    name=name,
                    inbox_prefix=f"_INBOX.{settings.durable}",
                    allow_reconnect=False,
                ),
                CONNECT_SECONDS * (1 + len(settings.nats_servers)),
            )
            link._inbox = link.new_inbox()
            await link.subscribe(f"{link._inbox}.*", link._on_answer)
        except Exception as error:  # noqa: BLE001 - nats-py trips over an INFO that is no object, and nkeys
            # and nacl have errors of their own; nothing that a server says may end the relay
            link._errors.append(error)
            await link.close()
            raise _explain(link._errors, settings) from None
        except BaseException:
            await link.close()
            raise
        return link

    def _options(self, settings: NatsSettings) -> dict[str, Any]:
        options: dict[str, Any] = {
            "servers": list(settings.nats_servers),
            "connect_timeout": CONNECT_SECONDS,
            "max_reconnect_attempts": 1,  # dials per server and try; 0 would mean for ever
            "reconnect_time_wait": 0.05,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": 2,
            # Above 2 MiB unsent a publish waits for the socket, by default for ever: so would the probe.
            "flush_timeout": FLUSH_SECONDS,
            "error_cb": self._on_error,
            "closed_cb": self._on_closed,
            "disconnected_cb": self._on_disconnected,
        }
        if settings.nats_nkey_seed:
            options["nkeys_seed_str"] = settings.nats_nkey_seed
        elif settings.nats_creds:
            options["user_credentials"] = RawCredentials(settings.nats_creds)
        elif settings.nats_creds_file:
            options["user_credentials"] = str(settings.nats_creds_file)
        if settings.nats_ca:
            context = ssl.create_default_context()
            if "-----BEGIN" in settings.nats_ca:
                context.load_verify_locations(cadata=settings.nats_ca)
            else:
                context.load_verify_locations(cafile=str(Path(settings.nats_ca)))
            options["tls"] = context
        return options

    # Callbacks never raise and only set state: one that raises leaves nats-py a zombie (measured).

    async def _on_error(self, error: Exception) -> None:
        self._errors.append(error)
        del self._errors[:-16]
        if _is_denial(error):
            self._fail_denied(str(error))

    async def _on_disconnected(self) -> None:
        self.drop("disconnected")

    async def _on_closed(self) -> None:
        self.drop("closed")

    def drop(self, reason: str) -> None:
        """Declare the connection lost."""
        if not self.lost.is_set():
            last = self._last_error()
            self.lost_reason = f"{reason}: {describe(last)}" if last else reason
            self.lost.set()
            for _, answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(Unanswered(f"the connection was lost: {self.lost_reason}"))

    def _last_error(self) -> BaseException | None:
        """The last error that may have cost the connection; a refused subject never does."""
        for error in (*reversed(self._errors), self._client.last_error):
            if error is not None and not _is_denial(error):
                return error
        return None

    @property
    def alive(self) -> bool:
        return not self.lost.is_set() and bool(self._client.is_connected)

    @property
    def server(self) -> str:
        """Host and port, without credentials."""
        url = self._client.connected_url
        return f"{url.hostname}:{url.port}" if url else ""

    @property
    def max_payload(self) -> int:
        """How many bytes of headers and body the server takes."""
        return int(self._client.max_payload)

    @property
    def version(self) -> str:
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def pins(self) -> bool:
        """Whether the server knows pinned clients of priority groups: since 2.11."""
        version = self._client.connected_server_version
        return (version.major, version.minor) >= (2, 11)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> Msg:
        """Ask and wait for the answer.

        Raises:
            Disconnected: Nothing was asked.
            ApiError: Nobody serves the subject (503).
            PermissionDenied: The server refused the request or the way back.
            Unanswered: No answer in time; it may have been done.
        """
        if not self.alive:
            raise Disconnected(self.lost_reason or "not connected")
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._asked[token] = (subject, answer)
        expiry = asyncio.get_running_loop().call_later(timeout_seconds, self._expire, token, timeout_seconds)
        try:
            await self.publish(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
            return await answer
        finally:
            expiry.cancel()
            self._asked.pop(token, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also when publishing failed first: else asyncio logs it

    async def gather(self, subject: str, payload: bytes, seconds: float) -> list[bytes]:
        """Ask everybody who listens on a subject: what they answer within so many seconds.

        Nobody listening ends it at once.

        Raises:
            Disconnected: Nothing was asked, or the connection was lost meanwhile.
            PermissionDenied: The server refused the request.
        """
        answers: list[bytes] = []
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def denied(words: str) -> None:
            if not over.done():
                over.set_exception(PermissionDenied(words))

        async def on_answer(msg: Msg) -> None:
            if not (msg.headers and msg.headers.get("Status") == "503"):
                answers.append(bytes(msg.data))
            elif not over.done():
                over.set_result(True)

        inbox = self.new_inbox()
        losing = asyncio.ensure_future(self.lost.wait())
        self.on_denied(subject, denied)
        subscription = await self.subscribe(inbox, on_answer)
        try:
            await self.publish(subject, payload, reply=inbox)
            ends: set[asyncio.Future[Any]] = {over, losing}
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self.lost.is_set():
                raise Disconnected(self.lost_reason)
            if over.done():
                over.result()
            return answers
        finally:
            losing.cancel()
            self.off_denied(subject)
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def _on_answer(self, msg: Msg) -> None:
        asked = self._asked.get(msg.subject.rsplit(".", 1)[-1])
        if asked is None or asked[1].done():
            return
        subject, answer = asked
        if msg.headers and msg.headers.get("Status") == "503":
            answer.set_exception(ApiError(503, 0, f"nobody answers {subject}"))
        else:
            answer.set_result(msg)

    def _expire(self, token: str, timeout_seconds: float) -> None:
        subject, answer = self._asked[token]
        if not answer.done():
            answer.set_exception(Unanswered(f"no answer to {subject} within {timeout_seconds:g} s"))

    def _fail_denied(self, words: str) -> None:
        # nats-py lower-cases the server's words, and what is compared with a configuration must not be. A
        # refused subscription is the way back of all answers, so it concerns every request.
        lowered = words.lower()
        for subject, denied in self._deniable.items():
            if f'"{subject.lower()}"' in lowered:
                denied(_spelled(words, subject))
        for subject, answer in list(self._asked.values()):
            if not answer.done() and (f'"{subject.lower()}"' in lowered or "to subscription" in lowered):
                answer.set_exception(PermissionDenied(_spelled(words, subject)))

    async def api(
        self, subject: str, body: Mapping[str, Any] | None = None, *, timeout_seconds: float = REQUEST_SECONDS
    ) -> dict[str, Any]:
        """A request to the JetStream API, e.g. ``STREAM.INFO.S``.

        Raises:
            ApiError: JetStream said no.
            BridgeError: As `request`.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        answer = await self.request(f"$JS.API.{subject}", payload, timeout_seconds=timeout_seconds)
        document: dict[str, Any] = json.loads(answer.data)
        error = document.get("error")
        if error:
            raise ApiError(
                int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
            )
        return document

    async def api_each(
        self, subject: str, bodies: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any] | ApiError]:
        """Requests to one subject of the JetStream API, all at once.

        Returns:
            The answers in the order of the requests, what JetStream said no to among them.

        Raises:
            BridgeError: No answer to one of them.
        """
        # Each is awaited to its end, so that none is left behind with an exception that nobody has seen.
        answers = await asyncio.gather(*(self.api(subject, body) for body in bodies), return_exceptions=True)
        found: list[dict[str, Any] | ApiError] = []
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ApiError):
                raise answer
            found.append(answer)
        return found

    async def publish(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send without waiting for anything.

        Raises:
            Disconnected: Nothing was sent.
        """
        if not self.alive:
            raise Disconnected(self.lost_reason or "not connected")
        try:
            await self._client.publish(subject, payload, reply=reply, headers=dict(headers or {}) or None)
        except (nats.errors.Error, OSError) as error:
            raise Disconnected(describe(error)) from None

    async def subscribe(self, subject: str, callback: Any) -> Subscription:
        """Have an async `callback` called with each message on `subject`."""
        try:
            return await self._client.subscribe(subject, cb=callback)
        except nats.errors.Error as error:
            raise Disconnected(describe(error)) from None

    def on_denied(self, subject: str, denied: Callable[[str], None]) -> None:
        """Have `denied` called with the server's words when a publish or subscription there is refused."""
        self._deniable[subject] = denied

    def off_denied(self, subject: str) -> None:
        """Undo `on_denied`."""
        self._deniable.pop(subject, None)

    def new_inbox(self) -> str:
        return str(self._client.new_inbox())

    async def close(self) -> None:
        """Close within `CLOSE_SECONDS`, by force if need be: closing hangs with a frozen peer (measured)."""
        self.drop("closed by us")
        closing = asyncio.ensure_future(self._client.close())
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        if not closing.done():
            transport = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
            if transport is not None:
                transport.transport.abort()
            closing.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.gather(closing, return_exceptions=True)

    def disown(self) -> None:
        """In a forked child: let go of the connection, which stays the parent's, and open, there.

        Its descriptor is pointed elsewhere. Closing the socket or the loop here would take it out of the
        selector that parent and child share.
        """
        writer = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        socket_ = writer.get_extra_info("socket") if writer is not None else None
        if socket_ is not None and socket_.fileno() >= 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, socket_.fileno(), inheritable=False)
            os.close(null)


def _is_denial(error: BaseException) -> bool:
    return "permissions violation" in str(error).lower()


def describe(error: BaseException | None) -> str:
    """An error of the NATS client in words; its texts hold no credentials (read in its source)."""
    if error is None:
        return ""
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)
    text = str(error).removeprefix("nats: ").strip()
    return text or type(error).__name__


def _explain(errors: list[BaseException], settings: NatsSettings) -> ConnectError:
    causes = [e for e in errors if not isinstance(e, nats.errors.NoServersError)] or errors
    for error in causes:
        text = describe(error).lower()
        if "authorization violation" in text or "authentication" in text or "user authentication" in text:
            return ConnectError("the server refuses our credentials", _auth_setting(settings), True)
        if isinstance(error, ssl.SSLError):
            return ConnectError(f"TLS: {error.reason or 'handshake failed'}", "NATS_CA or NATS_URL", True)
    cause = describe(causes[-1]) or "no server answers"
    return ConnectError(f"{', '.join(settings.nats_hosts)}: {cause}", "NATS_URL", False)


def _auth_setting(settings: NatsSettings) -> str:
    if settings.nats_nkey_seed:
        return "NATS_TELEGRAM_NKEY_SEED"
    if settings.nats_creds:
        return "NATS_CREDS"
    if settings.nats_creds_file:
        return "NATS_CREDS_FILE"
    return "NATS_URL or NATS_AUTH"


def _spelled(words: str, subject: str) -> str:
    quoted = f'"{subject}"'
    return re.sub(re.escape(quoted), lambda _: quoted, words, flags=re.IGNORECASE)


__all__ = ["ConnectError", "Link", "PermissionDenied", "describe"]
