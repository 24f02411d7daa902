"""The metrics, and whether the relay lives and is ready, over HTTP; what Prometheus and Kubernetes ask for.

prometheus_client writes the exposition formats. Nothing of it is used that counts: that would keep figures of
its own in globals, by variables of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import socketserver
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from telegram_connector.instruments import TABLE, Instrument, Kind
from telegram_connector.metering import Metering, Totals

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CLIENT_SECONDS = 10.0  # for a client to send its request and take the answer
POLL_SECONDS = 0.1
MAX_REQUESTS = 8  # at once


@dataclass(frozen=True)
class Reply:
    """What a probe is told."""

    well: bool
    words: str


class Page:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` from threads of its own.

    Args:
        address: IP address and port.
        metering: The figures.
        alive: For ``/healthz``.
        ready: For ``/readyz``.
    """

    def __init__(
        self,
        address: tuple[str, int],
        metering: Metering,
        alive: Callable[[], Reply],
        ready: Callable[[], Reply],
    ) -> None:
        self._address = address
        self._metering = metering
        self._probes = {"/healthz": alive, "/readyz": ready}
        self._server: _Server | None = None

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: The address cannot be had.
        """
        self._server = _Server(self._address, self._answer)
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(POLL_SECONDS,), name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        """(status, content type, body)"""
        probe = self._probes.get(path)
        if probe is not None:
            reply = probe()
            status = HTTPStatus.OK if reply.well else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "text/plain; charset=utf-8", f"{reply.words}\n".encode()
        if path != "/metrics":
            return HTTPStatus.NOT_FOUND, "text/plain", b"/metrics, /healthz or /readyz\n"
        # Loaded only where it is asked for: an extra.
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self._metering))
        encode, content_type = choose_encoder(accept)
        return HTTPStatus.OK, content_type, encode(registry)


class _Collector:
    """What a registry of prometheus_client collects from."""

    def __init__(self, metering: Metering) -> None:
        self._metering = metering

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        totals = self._metering.totals()
        readings = self._metering.readings()
        for instrument in TABLE:
            if instrument.kind is not Kind.GAUGE:
                yield _accumulated(instrument, totals, self._metering.durable)
                continue
            names = ("durable", *instrument.labels)
            family = GaugeMetricFamily(instrument.prometheus_name, instrument.help, labels=names)
            for measure in readings:
                if measure.instrument is instrument:
                    family.add_metric([self._metering.durable, *measure.labels], measure.value)
            yield family


def _accumulated(instrument: Instrument, totals: Totals, durable: str) -> Metric:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    names = ("durable", *instrument.labels)
    if instrument.kind is Kind.COUNTER:
        counter = CounterMetricFamily(instrument.prometheus_name, instrument.help, labels=names)
        for (of, labels), value in totals.counters.items():
            if of is instrument:
                counter.add_metric([durable, *labels], value)
        return counter
    histogram = HistogramMetricFamily(instrument.prometheus_name, instrument.help, labels=names)
    bounds = (*(repr(float(bound)) for bound in instrument.buckets), "+Inf")
    for (of, labels), known in totals.histograms.items():
        if of is instrument:
            buckets = list(zip(bounds, itertools.accumulate(known.counts), strict=True))
            histogram.add_metric([durable, *labels], buckets, known.sum)
    return histogram


_servers: weakref.WeakSet[_Server] = weakref.WeakSet()


class _Server(socketserver.ThreadingTCPServer):
    # Not HTTPServer, which asks for the name of its address first: that may take a while.
    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], answer: Callable[[str, str], tuple[HTTPStatus, str, bytes]]
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.answer = answer
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address, _Handler)
        _servers.add(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The handler's own timeout is for silence, which a client that says a byte now and then never keeps.
        end = threading.Timer(CLIENT_SECONDS, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._room.release()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """A client that went away is nobody's fault."""


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            status, content_type, body = self.server.answer(path, self.headers.get("Accept", ""))
        except Exception as error:  # noqa: BLE001 - a bug over a page is the asker's to see
            status, content_type = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain"
            body = f"internal error: {type(error).__name__}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        return "telegram_connector"

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no news."""


def _leave_to_the_parent() -> None:
    # Else the port would be taken, and answer nobody, for as long as a child lives.
    for server in list(_servers):
        server.socket.close()


os.register_at_fork(after_in_child=_leave_to_the_parent)
