"""The Bot API over HTTP: one message sent once, and what came of it.

Nothing is retried here, no redirect is followed, and no exception leaves with the URL in it, which holds the
bot token. Only this module and ``transport`` beneath it know ``requests`` and ``urllib3``.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import requests
import urllib3
from opentelemetry import context

from telegram_connector import __version__
from telegram_connector.classify import classify
from telegram_connector.disposition import Ambiguous, BotFault, Sent, Transient, Tried, Unavailable
from telegram_connector.envelope import TelegramOutbound, request_body
from telegram_connector.transport import Flight, RecordedAdapter

T = TypeVar("T")

__all__ = ["RedactingFilter", "TelegramClient", "classify", "classify_failure"]

# A host that has urllib3 instrumented would have our URL, and with it the token, in its spans. (The key has
# no public name; what instruments HTTP clients asks for this one.)
_NOT_INSTRUMENTED = context._SUPPRESS_HTTP_INSTRUMENTATION_KEY

# An answer to sendMessage is about 1 kB; whatever is larger is not from a Bot API server.
MAX_ANSWER_BYTES = 1024 * 1024
# Load balancers and NAT forget idle connections, the first send after that meets a reset or silence
# (eternnoir/pyTelegramBotAPI#880).
MAX_IDLE_SECONDS = 30.0

_TRANSPORT_ERRORS = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,  # ssl.SSLError and TimeoutError too
)


def classify_failure(error: Exception, request_written: bool) -> Unavailable | Ambiguous:
    """Return what it means that a request brought no answer.

    Args:
        error: What was raised. Its text is not used, since it may hold the URL.
        request_written: Whether a byte of the request may have reached the other side.
    """
    description = _describe(error, request_written)
    return Ambiguous(description) if request_written else Unavailable(description)


class TelegramClient:
    """Sends to the Bot API, one request at a time: each sender thread has its own.

    Only ``abort`` may be called from another thread.

    Attributes:
        bot_name: The bot's user name, once ``get_me`` has succeeded.
    """

    def __init__(
        self,
        token: str,
        base_url: str,
        *,
        proxy_url: str | None = None,
        ca_bundle: str | None = None,
        connect_timeout_seconds: float = 5.0,
        read_timeout_seconds: float = 30.0,
        classify: Callable[[int, Mapping[str, str], bytes], Tried] = classify,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a client; nothing is connected yet, and the environment is not looked at.

        Args:
            token: The bot's token.
            base_url: Bot API server, without a trailing slash.
            proxy_url: Proxy to go through, credentials included.
            ca_bundle: File or directory of authorities, instead of certifi's.
            connect_timeout_seconds: Longest wait for a connection, per address of the host.
            read_timeout_seconds: Longest silence while the answer is awaited. The Bot API may sit on a
                request for ten seconds.
            classify: What an answer comes to.
            clock: Monotonic seconds; the one that deadlines are given in.
        """
        self.bot_name: str | None = None
        self._date = ""
        self._token = token.encode()
        self._connect_timeout = connect_timeout_seconds
        self._read_timeout = read_timeout_seconds
        self._classify = classify
        self._clock = clock
        self._flight = Flight(clock)
        self._adapter = RecordedAdapter(self._flight)
        self._last_used = clock()
        # All that does not change from one send to the next is settled here.
        self._send_message = _prepared(f"{base_url}/bot{token}/sendMessage")
        self._get_me = _prepared(f"{base_url}/bot{token}/getMe")
        self._base_url = base_url
        self._bot_id = token.partition(":")[0]
        self._verify = ca_bundle or True
        self._proxies = {"http": proxy_url, "https": proxy_url} if proxy_url else {}
        _redact(token)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} bot_name={self.bot_name!r}>"

    @property
    def server_time(self) -> float | None:
        """What the last answer's ``Date`` header said, in seconds of the epoch; None where it had none."""
        try:
            return parsedate_to_datetime(self._date).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Tried:
        """Send one message once.

        Args:
            envelope: What to say.
            chat_id: Decimal id or ``@name`` of the chat.
            deadline: Clock seconds by which the call is to be over; it shortens the timeouts. Looking up the
                host name is the one thing that it cannot interrupt.
            number: Names this send towards ``abort``; unique for this client.

        Raises:
            RuntimeError: Something unforeseen went wrong before anything was sent; without the URL.
        """
        disposition, _ = self._post(self._send_message, request_body(envelope, chat_id), deadline, number)
        return disposition

    def get_me(self, deadline: float, *, number: int | None = None) -> Tried:
        """Ask the Bot API whether the bot is well; ``Sent`` means that it is.

        Args:
            deadline: As for ``send``.
            number: As for ``send``.

        Raises:
            RuntimeError: As for ``send``.
        """
        disposition, body = self._post(self._get_me, b"{}", deadline, number)
        if isinstance(disposition, Sent):
            self.bot_name = _user_name(body)
        return disposition

    # Questions that people ask through commands. What succeeded is the answer's `result`.

    def reach(self, deadline: float) -> Tried:
        """Make a connection without showing the token; whatever carries a status came from a server.

        Raises:
            RuntimeError: As for ``send``.
        """
        return self._post(_prepared(f"{self._base_url}/"), b"{}", deadline, None)[0]

    def get_chat(self, chat_id: str, deadline: float) -> dict[str, Any] | Tried:
        """What Telegram knows of a chat.

        Raises:
            RuntimeError: As for ``send``.
        """
        return self._ask("getChat", {"chat_id": chat_id}, deadline, dict)

    def get_own_membership(self, chat_id: str, deadline: float) -> dict[str, Any] | Tried:
        """What the bot is in a chat: Telegram's ChatMember.

        Raises:
            RuntimeError: As for ``send``.
        """
        parameters = {"chat_id": chat_id, "user_id": int(self._bot_id)}
        return self._ask("getChatMember", parameters, deadline, dict)

    def get_webhook_info(self, deadline: float) -> dict[str, Any] | Tried:
        """Where Telegram delivers updates; its ``url`` is empty where nowhere.

        Raises:
            RuntimeError: As for ``send``.
        """
        return self._ask("getWebhookInfo", {}, deadline, dict)

    def get_updates(self, deadline: float) -> list[Any] | Tried:
        """The oldest hundred updates that nobody has confirmed yet; none is confirmed by this.

        Nothing but the limit is asked for: an offset would confirm updates, and ``allowed_updates`` would
        stay in force for whoever reads them.

        Raises:
            RuntimeError: As for ``send``.
        """
        return self._ask("getUpdates", {"limit": 100}, deadline, list)

    def _ask(self, method: str, parameters: Mapping[str, Any], deadline: float, kind: type[T]) -> T | Tried:
        request = _prepared(f"{self._base_url}/bot{self._token.decode()}/{method}")
        disposition, body = self._post(request, json.dumps(parameters).encode(), deadline, None)
        if not isinstance(disposition, Sent):
            return disposition
        result = msgspec.json.decode(body).get("result")  # classify has read it: an object, ok: true
        if isinstance(result, kind):
            return result
        return Ambiguous("HTTP 200 without a readable answer", 200)

    def abort(self, number: int | None = None) -> bool:
        """End the send in flight; any thread may call this.

        Its socket is shut down: the send comes back at once, as ``Ambiguous``, or as ``Unavailable`` where
        nothing had been written yet. A host name being looked up or a TCP connection being made is not
        interrupted, but ends the send when it is done.

        Args:
            number: The send that is meant: any other is left alone. None means whichever is in flight.

        Returns:
            Whether that send was in flight. It may still have ended by itself at the same moment.
        """
        return self._flight.abort(number)

    def close(self) -> None:
        """Close the connection. The client may be used again afterwards."""
        self._adapter.close()

    def _post(
        self, request: requests.PreparedRequest, body: bytes, deadline: float, number: int | None
    ) -> tuple[Tried, bytes]:
        now = self._clock()
        remaining = deadline - now
        if remaining <= 0:
            return Unavailable("no time was left to send it"), b""
        if now - self._last_used >= MAX_IDLE_SECONDS:
            self._adapter.close()
        request.body = body
        request.headers["Content-Length"] = str(len(body))
        self._date = ""
        self._flight.begin(number, deadline)
        token = context.attach(context.set_value(_NOT_INSTRUMENTED, True))
        try:
            return self._exchange(request, remaining)
        finally:
            context.detach(token)
            self._last_used = self._clock()
            if self._flight.end():
                self._adapter.close()

    def _exchange(self, request: requests.PreparedRequest, remaining: float) -> tuple[Tried, bytes]:
        timeout = (min(self._connect_timeout, remaining), min(self._read_timeout, remaining))
        try:
            response = self._adapter.send(
                request, stream=True, timeout=timeout, verify=self._verify, proxies=self._proxies
            )
        except _TRANSPORT_ERRORS as error:
            return self._failure(error), b""
        except Exception as error:  # noqa: BLE001 - it would leave with the URL in its text or its frames
            if self._flight.written:
                return self._failure(error), b""
            raise RuntimeError(f"sending failed with an unexpected {type(error).__name__}") from None
        raw = response.raw
        status, headers = response.status_code, response.headers
        self._date = headers.get("Date", "")
        try:
            body = _read(raw)
        except _TRANSPORT_ERRORS as error:
            return self._cut(status, headers, error), b""
        finally:
            raw.close()  # without effect on a connection that went back to the pool: all was read
            raw.release_conn()
        # A server that is not Telegram's may repeat the path that was asked for.
        body = body.replace(self._token, b"<token>")
        disposition = self._classify(status, headers, body)
        if self._flight.aborted and not isinstance(disposition, Sent):
            # Our own shut-down may look like the end of an answer that gives no length.
            return self._cut(status, headers, ConnectionAbortedError()), b""
        return disposition, body

    def _failure(self, error: Exception) -> Unavailable | Ambiguous:
        failure = classify_failure(error, self._flight.written)
        if not self._flight.aborted:
            return failure
        return type(failure)("aborted by us")

    def _cut(self, status: int, headers: Any, error: Exception) -> Tried:
        """Return what an answer comes to whose status was read, but not all of its body."""
        if 200 <= status < 300:
            why = "aborted by us" if self._flight.aborted else _describe(error, True)
            return Ambiguous(f"HTTP {status}, then: {why}", status)
        disposition = self._classify(status, headers, b"")
        if status >= 500 or isinstance(disposition, BotFault | Unavailable):
            return disposition
        # Refused, so not sent; but the part that is missing may have held a chat's new id or a wait.
        asked = disposition.retry_after_seconds if isinstance(disposition, Transient) else None
        return Transient(status, f"HTTP {status}, then: {_describe(error, True)}", asked)


def _prepared(url: str) -> requests.PreparedRequest:
    headers = {
        "Accept": "application/json",
        # Answers are small; what is not compressed cannot fail to decompress.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": f"telegram_connector/{__version__}",
    }
    # Not through a Session: that would look at the environment, .netrc and cookies for every request.
    prepared = requests.Request("POST", url, headers=headers, data=b"{}").prepare()
    prepared.headers = dict(prepared.headers)  # type: ignore[assignment]  # copied for each send; cheaper
    return prepared


def _read(raw: urllib3.response.HTTPResponse) -> bytes:
    """Return the body, or nothing of one that is too large."""
    raw.enforce_content_length = True  # urllib3 1 would take a cut body for a whole one
    body = b""
    while chunk := raw.read(MAX_ANSWER_BYTES + 1 - len(body), decode_content=True):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            return b""
        if raw.length_remaining == 0:
            break
    return body


def _user_name(body: bytes) -> str | None:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    name = answer["result"].get("username") if isinstance(answer.get("result"), dict) else None
    return name if isinstance(name, str) else None


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and all that it was made from, outermost first."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        item = waiting.pop(0)
        if not isinstance(item, BaseException) or any(item is other for other in found):
            continue
        found.append(item)
        waiting += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return found


def _describe(error: Exception, request_written: bool) -> str:
    """Name a failure in a few words, by its class and its number: texts may hold the URL."""
    causes = _causes(error)
    if any(_is_timeout(cause) for cause in causes):
        return "no answer in time" if request_written else "connecting timed out"
    named = (name for cause in reversed(causes) if (name := _words(cause)))
    words = next(named, type(error).__name__)
    # urllib3 still speaks of the proxy when the connection through it breaks later on.
    is_proxy = not request_written and any(
        isinstance(cause, requests.exceptions.ProxyError) for cause in causes
    )
    return f"proxy: {words}" if is_proxy else words


def _is_timeout(error: BaseException) -> bool:
    if isinstance(error, urllib3.exceptions.NewConnectionError):  # a "timeout" by history only
        return False
    return isinstance(error, TimeoutError | requests.Timeout | urllib3.exceptions.TimeoutError)


def _words(error: BaseException) -> str | None:
    match error:
        case socket.gaierror():
            return "the host name cannot be resolved"
        case ssl.SSLCertVerificationError():
            return f"TLS certificate refused: {getattr(error, 'verify_message', 'no reason given')}"
        case ssl.SSLError():  # its errno is one of OpenSSL's
            return f"TLS failed: {getattr(error, 'reason', None) or 'no reason given'}"
        case http.client.RemoteDisconnected():
            return "connection closed without an answer"
        case http.client.IncompleteRead() | urllib3.exceptions.IncompleteRead():
            return "the answer was cut off"
        case http.client.HTTPException():
            return "what came back is not HTTP"
        case urllib3.exceptions.DecodeError():
            return "the answer cannot be decompressed"
        case OSError() if refused := re.match(r"Tunnel connection failed: (\d{3})", str(error)):
            return f"CONNECT refused with HTTP {refused[1]}"
        case OSError() if isinstance(error.errno, int) and error.errno > 0:
            return os.strerror(error.errno)
    return None


class RedactingFilter(logging.Filter):
    """Takes a secret out of log records: urllib3 logs every URL at DEBUG."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._forms = frozenset((secret, quote(secret, safe="")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedactingFilter) and other._forms == self._forms

    def __hash__(self) -> int:
        return hash(self._forms)

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record where it holds the secret; it is always let through."""
        text = record.getMessage()
        clean = self._redacted(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            clean = self._redacted(trace)
            if clean != trace:
                record.exc_info, record.exc_text = None, clean
        return True

    def _redacted(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, "<token>")
        return text


_filters_lock = threading.Lock()


def _redact(token: str) -> None:
    """Keep the token out of urllib3's log; filters of a logger do not apply to its children."""
    redacting = RedactingFilter(token)
    with _filters_lock:
        for name in ("connection", "connectionpool", "poolmanager", "util.retry"):
            logger = logging.getLogger(f"urllib3.{name}")
            if redacting not in logger.filters:
                logger.addFilter(redacting)
