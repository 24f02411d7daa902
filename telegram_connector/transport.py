"""How a request travels: whether it has been written, by when it must be over, and how to stop it.

``requests`` tells none of these. A failure of the TLS handshake and one after the body look the same, a
timeout starts again with every byte, and nothing can be stopped from another thread. So the connections under
it are ours.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

# An answer with a body, whole within what has come so far; no header goes on in a second line. Statuses
# whose answers have no body are left to http.client.
_USUAL_HEAD = re.compile(
    rb"HTTP/1\.1 ((?:2(?!04)|[45])\d\d)([^\r\n]*)\r\n((?:[!-9;-~]+:[^\r\n]*\r\n){1,100})\r\n"
)


class Flight:
    """The one request that a client may have under way.

    The sender's thread begins and ends it; any other may abort it.

    Attributes:
        written: Whether a byte of the request may have reached the other side. Bytes of a TLS handshake or of
            a CONNECT to a proxy do not count.
        aborted: Whether it was aborted.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.written = False
        self.aborted = False
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way = False
        self._number: int | None = None
        self._deadline = 0.0
        self._socket: socket.socket | None = None  # a duplicate: see _Recorded
        self._orphaned = False  # its connection is closed; the duplicate is ours to close

    def begin(self, number: int | None, deadline: float) -> None:
        """A request is about to be made, to be over by ``deadline`` (clock seconds)."""
        with self._lock:
            self._under_way = True
            self._number, self._deadline = number, deadline
            self.written = self.aborted = False

    def end(self) -> bool:
        """The request is over; return whether it was aborted, which leaves its connection unusable."""
        with self._lock:
            self._under_way = False
            self._forget()
            return self.aborted

    def abort(self, number: int | None) -> bool:
        """Shut the socket down; return whether the request with that number (None: any) is under way."""
        with self._lock:
            if not self._under_way or (number is not None and number != self._number):
                return False
            self.aborted = True
            _shut_down(self._socket)
            return True

    def use(self, duplicate: socket.socket) -> None:
        """The request goes over this socket; connecting has begun."""
        with self._lock:
            if self._under_way and duplicate is not self._socket:
                self._forget()
                self._socket = duplicate
                if self.aborted:  # while there was nothing to shut down yet
                    _shut_down(duplicate)

    def drop(self, duplicate: socket.socket) -> None:
        """The connection is closed. Its answer may still be read, so the socket stays until the end."""
        with self._lock:
            if duplicate is self._socket:
                self._orphaned = True
            else:
                duplicate.close()

    def writing(self) -> None:
        """The first byte is about to be written.

        Raises:
            ConnectionAbortedError: The request has been aborted; nothing was written and nothing may be.
        """
        with self._lock:
            if self.aborted and not self.written:
                raise ConnectionAbortedError
            self.written = True

    def remaining_seconds(self) -> float:
        """Return the time until the deadline."""
        return self._deadline - self._clock()

    def _forget(self) -> None:
        if self._orphaned and self._socket is not None:
            self._socket.close()
        self._socket, self._orphaned = None, False


def _shut_down(sock: socket.socket | None) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):  # it is not connected any more, which is what was wanted
            sock.shutdown(socket.SHUT_RDWR)


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket, never beyond the deadline of the flight, however slowly the answer drips in."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, flight: Flight) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._flight = flight

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining = self._flight.remaining_seconds()
        if remaining <= 0:
            raise TimeoutError
        timeout = self._sock.gettimeout()
        if timeout is None or timeout > remaining:
            self._sock.settimeout(remaining)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _DeadlineResponse(http.client.HTTPResponse):
    """``http.client``'s response, read through a ``_DeadlineReader``."""

    def __init__(self, sock: Any, *args: Any, flight: Flight, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_DeadlineReader(self.fp.detach(), sock, flight))

    def begin(self) -> None:
        """Read status and headers: in one go where they are as usual, else as ``http.client`` does.

        Its parser is the one for mail, which takes longer than the rest of the exchange.
        """
        headers: object = self.headers  # None before this, whatever typeshed says
        if headers is not None or not self._begin_usual(self.fp.peek()):
            super().begin()

    def _begin_usual(self, peeked: bytes) -> bool:
        found = _USUAL_HEAD.match(peeked)
        if found is None:
            return False
        status = int(found[1])
        message = http.client.HTTPMessage()
        for line in found[3].decode("iso-8859-1").split("\r\n")[:-1]:
            name, _, value = line.partition(":")
            message[name] = value.lstrip(" \t")
        length = message.get_all("Content-Length", ())
        if len(length) != 1 or not length[0].isdecimal() or "Transfer-Encoding" in message:
            return False
        self.fp.read(found.end())
        self.version = 11
        self.code = self.status = status
        self.reason = found[2].decode("iso-8859-1").strip()
        self.headers = self.msg = message
        self.chunked = False
        self.length = int(length[0])
        self.will_close = "close" in message.get("Connection", "").lower()
        return True


class _Recorded(HTTPConnection):
    """A connection that tells the flight when the request is written, and over which socket.

    The socket is registered as a duplicate: the original is taken apart when TLS is put around it, and its
    number may be somebody else's by the time that another thread wants to shut it down.
    """

    flight: Flight  # set by the subclass that RecordedAdapter makes
    _duplicate: socket.socket | None = None
    _established = False
    _head = b""  # of the request, until its body comes: one write wakes the other side once, not twice

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.response_class = functools.partial(_DeadlineResponse, flight=self.flight)  # type: ignore[assignment]

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        self._duplicate = socket.fromfd(sock.fileno(), sock.family, sock.type)
        self.flight.use(self._duplicate)
        return sock

    def connect(self) -> None:
        super().connect()
        self._established = True

    def send(self, data: Any) -> None:
        if self.sock is None:  # as http.client would, but before it counts as written
            self.connect()
        if self._established:  # else it is the CONNECT to a proxy
            if not self._head and data.startswith(b"POST "):  # every request of ours has a body
                self._head = data
                return
            data, self._head = self._head + data, b""
            if self._duplicate is not None:
                self.flight.use(self._duplicate)
            self.flight.writing()
        super().send(data)

    def close(self) -> None:
        self._established = False
        self._head = b""
        duplicate, self._duplicate = self._duplicate, None
        try:
            super().close()
        finally:
            if duplicate is not None:
                self.flight.drop(duplicate)


class RecordedAdapter(HTTPAdapter):
    """One kept-alive connection, recorded; also through proxies.

    All requests go to one server in one way. What ``requests`` works out for each from scratch (the pool, the
    certificates' place, the path, cookies and encoding of the answer) is worked out once here, or not at all.
    """

    def __init__(self, flight: Flight) -> None:
        self._pool: Any = None
        self._verified: Any = None
        self._targets: dict[str, str] = {}
        self._pools = _pools(flight, HTTPConnection, HTTPSConnection, HTTPConnectionPool, HTTPSConnectionPool)
        self._flight = flight
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        if self._pool is None:
            self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return self._pool

    def cert_verify(self, conn: Any, *args: Any, **kwargs: Any) -> None:
        if conn is not self._verified:
            super().cert_verify(conn, *args, **kwargs)  # type: ignore[no-untyped-call]
            self._verified = conn

    def request_url(self, request: PreparedRequest, proxies: Any) -> str:
        url = str(request.url)
        if url not in self._targets:
            self._targets[url] = super().request_url(request, proxies)
        return self._targets[url]

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        response = Response()
        response.status_code = resp.status
        response.headers = resp.headers
        response.raw = resp
        response.request = req
        return response

    def close(self) -> None:
        super().close()
        self._pool = self._verified = None

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        if proxy.lower().startswith("socks"):
            # Only now: it needs PySocks.
            from urllib3.contrib import socks

            manager.pool_classes_by_scheme = _pools(
                self._flight,
                socks.SOCKSConnection,
                socks.SOCKSHTTPSConnection,
                socks.SOCKSHTTPConnectionPool,
                socks.SOCKSHTTPSConnectionPool,
            )
        else:
            manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(flight: Flight, plain: type, secure: type, plain_pool: type, secure_pool: type) -> dict[str, Any]:
    """Return pool classes whose connections report to ``flight``; urllib3 offers no other way in."""

    def recorded(connection: type, pool: type) -> type:
        made = type(f"Recorded{connection.__name__}", (_Recorded, connection), {"flight": flight})
        return type(f"Recorded{pool.__name__}", (pool,), {"ConnectionCls": made})

    return {"http": recorded(plain, plain_pool), "https": recorded(secure, secure_pool)}
