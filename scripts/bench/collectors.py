"""OpenTelemetry collectors for the relay to export to."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Forgetful(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def collectors() -> Iterator[tuple[str, str]]:
    """URLs of one that forgets what it gets, and of one that takes connections and never answers."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Forgetful)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        yield f"http://127.0.0.1:{server.server_port}", f"http://127.0.0.1:{silent.getsockname()[1]}"
    server.shutdown()
    server.server_close()
