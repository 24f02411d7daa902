"""An OTLP/HTTP collector on loopback: takes what is exported, decodes it, or hangs."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_SECONDS = 60.0
REQUESTS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Collector:
    """What was exported so far.

    Attributes:
        raw: The bodies as they came, unpacked.
        hang: While it is set, requests are taken and not answered.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Message] = []
        self.raw: list[bytes] = []
        self.hang = False
        self.released = threading.Event()
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        request = REQUESTS[path]()
        request.ParseFromString(body)
        with self._changed:
            self.raw.append(body)
            self._requests.append(request)
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), self._requests

    def of(self, kind: type[Message]) -> list[Any]:
        return [request for request in self._requests if isinstance(request, kind)]

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.of(ExportTraceServiceRequest)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metrics(self) -> dict[str, Any]:
        """The latest of each metric, by name."""
        return {
            metric.name: metric
            for request in self.of(ExportMetricsServiceRequest)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    @property
    def logs(self) -> list[Any]:
        return [
            record
            for request in self.of(ExportLogsServiceRequest)
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    @property
    def resource(self) -> dict[str, str]:
        """Attributes of whoever exported spans."""
        request = self.of(ExportTraceServiceRequest)[0]
        return attributes(request.resource_spans[0].resource)


def attributes(holder: Any) -> dict[str, Any]:
    """Attributes of a span, a record, a data point or a resource."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in holder.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            if collector.hang:
                collector.released.wait(PATIENCE_SECONDS)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        thread.join(PATIENCE_SECONDS)
        server.server_close()
