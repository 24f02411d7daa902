"""The socket under the Bot API: keep-alive, resets, answers cut short or dripped, a server that stops.

werkzeug's own handler closes every connection after one answer; clients of the Bot API rely on keep-alive,
so the request loop here is ours. An app ends a connection by raising `Cut`.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from http import HTTPStatus
from io import RawIOBase
from typing import Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from telegram_connector.sandbox.presets import PRESETS

# Clients that open a connection per message come in crowds.
_BACKLOG = 512
# What is left of a body nobody read is thrown away up to here, so that the answer is not lost to a reset.
_MAX_DRAIN_BYTES = 16 << 20


class Cut(Exception):
    """Raised by an app to end the connection now.

    Attributes:
        reset: Whether the other side gets a TCP reset instead of an orderly end.
    """

    def __init__(self, *, reset: bool) -> None:
        self.reset = reset
        super().__init__("reset" if reset else "closed")


def reset(connection: socket.socket) -> None:
    """Closes a connection so that the other side gets a reset (RST), not an end (FIN)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # socket.close would wait for the files made of it; the descriptor itself must go now.
    os.close(connection.detach())


def rest(connection: socket.socket, seconds: float) -> bool:
    """Waits `seconds`, or until the other side hangs up or the server stops; False then."""
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))
    return not poll.poll(seconds * 1000)


def half(body: bytes) -> Iterator[bytes]:
    """The first half of a body, and then the end of the connection."""
    yield body[: len(body) // 2]
    raise Cut(reset=False)


def drip(connection: socket.socket, body: bytes, size: int, interval_seconds: float) -> Iterator[bytes]:
    """A body in pieces of `size` bytes with `interval_seconds` between them."""
    for start in range(0, len(body), size):
        if start and not rest(connection, interval_seconds):
            raise Cut(reset=False)
        yield body[start : start + size]


class _Body(RawIOBase):
    """A request's body: what Content-Length says, never the next request."""

    def __init__(self, rfile: Any, length: int) -> None:
        self._rfile = rfile
        self.left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self.left)
        data = self._rfile.read(size) if size else b""
        if size and not data:
            # The caller went away in the middle of it; half a body must not pass for a whole one.
            raise Cut(reset=False)
        self.left -= len(data)
        buffer[: len(data)] = data
        return len(data)


class Handler(WSGIRequestHandler):
    """Serves one connection, request after request."""

    protocol_version = "HTTP/1.1"
    # A small answer after a small head waits 40 ms for the client's ACK otherwise.
    disable_nagle_algorithm = True
    server: Server

    def run_wsgi(self) -> None:
        """Answers one request."""
        environ = self.make_environ()
        body = environ["wsgi.input"] if environ.get("wsgi.input_terminated") else self._sized_body()
        environ["wsgi.input"] = body
        environ["wsgi.input_terminated"] = True
        try:
            self._answer(environ)
            if isinstance(body, _Body) or not self.close_connection:
                self._drain(body)
        except Cut as cut:
            self.close_connection = True
            if cut.reset:
                reset(self.connection)

    def _sized_body(self) -> _Body:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit():
            self.close_connection = True
            return _Body(self.rfile, 0)
        return _Body(self.rfile, int(length))

    def _answer(self, environ: dict[str, Any]) -> None:
        head: list[bytes] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            head[:] = [self._head(status, headers)]
            return self.wfile.write

        pieces: Iterable[bytes] = self.server.app(environ, start_response)
        try:
            for piece in pieces:
                if self.command == "HEAD":
                    piece = b""
                # Head and first piece leave in one packet.
                self.wfile.write(b"".join((*head, piece)))
                head.clear()
            if head:
                self.wfile.write(head[0])
        finally:
            close: Callable[[], None] | None = getattr(pieces, "close", None)
            if close is not None:
                close()

    def _head(self, status: str, headers: list[tuple[str, str]]) -> bytes:
        names = {name.lower(): value for name, value in headers}
        if names.get("connection", "").lower() == "close" or "content-length" not in names:
            # Without a length the end of the connection is the end of the answer, as for an event stream.
            self.close_connection = True
        lines = [
            f"HTTP/1.1 {status}",
            "Server: telegram-connector-sandbox",
            f"Date: {formatdate(usegmt=True)}",
        ]
        lines += [f"{name}: {value}" for name, value in headers if name.lower() != "connection"]
        lines.append(f"Connection: {'close' if self.close_connection else 'keep-alive'}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _drain(self, body: Any) -> None:
        left = _MAX_DRAIN_BYTES
        while left > 0:
            try:
                data = body.read(65_536)
            except OSError:
                data = None
                self.close_connection = True
            if not data:
                return
            left -= len(data)
        self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what is no readable HTTP, in the words of what stands before the Bot API."""
        self.close_connection = True
        preset = PRESETS[{414: "url_414", 431: "hdr_431"}.get(code, "body_empty_400")]
        body = (preset.body or "").encode()
        phrase = HTTPStatus(preset.status).phrase
        head = (
            f"HTTP/1.1 {preset.status} {phrase}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.wfile.write(head.encode() + body)

    def log(self, type: str, message: str, *args: Any) -> None:
        """Says nothing: the record has every call."""


class Server(ThreadedWSGIServer):
    """A server with a thread per connection, which it can end at any time.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(self, host: str, port: int, app: Any) -> None:
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        # werkzeug exits the whole program when it cannot bind, so binding is done here.
        with socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG
        ) as listening:
            super().__init__(host, port, app, Handler, fd=listening.fileno())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a new connection a thread."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="sandbox-connection", daemon=True
        )
        with self._lock:
            self._connections[thread] = request
        thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stops listening, ends every connection, and waits for their threads."""
        self.shutdown()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections.values():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                # Closed on its own meanwhile.
                continue
        deadline = time.monotonic() + timeout_seconds
        for thread in connections:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._connections.pop(threading.current_thread(), None)
