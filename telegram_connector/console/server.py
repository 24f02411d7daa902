"""The console at work: a context manager for tests, and a blocking call for the command line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from telegram_connector.console.access import Access
from telegram_connector.console.app import Pages
from telegram_connector.console.audit import Audit
from telegram_connector.console.guard import Guard
from telegram_connector.console.watch import Watch
from telegram_connector.projection import Policy
from telegram_connector.settings import NatsSettings

MAX_CONNECTIONS = 128
SILENT_SECONDS = 30.0  # a connection that says or takes nothing for so long is closed

# How often the accepting thread looks whether it shall stop; a connection wakes it at once.
_POLL_SECONDS = 0.05


class _Handler(WSGIRequestHandler):
    """One connection."""

    timeout = SILENT_SECONDS
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def version_string(self) -> str:
        """Says no version."""
        return "telegram-connector"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Says nothing: what matters is in the audit."""


class _Server(ThreadedWSGIServer):
    """A thread per connection, for so many at most."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, app: Any) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # werkzeug exits the whole program when it cannot bind, so binding is done here.
        with socket.create_server((host, port), family=family, backlog=64) as listening:
            super().__init__(host, port, app, _Handler, fd=listening.fileno())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a new connection a thread, or closes it."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def log(self, type: str, message: str, *args: Any) -> None:
        """Says nothing."""


class Console:
    """The operator's page on a NATS account.

    Args:
        settings: Of an operator, see deploy/nats-permissions.conf.
        access: Who may reach it.
        port: 0 takes a free one, and keeps it through `stop` and `start`.
        operator: Who they are that need no token, for the record.
        bot: The bot's id, where it is known.
        policy: What the preview lets leave; None for the usual one.

    Raises:
        OSError: From `start`: the address cannot be bound.
    """

    def __init__(
        self,
        settings: NatsSettings,
        access: Access,
        *,
        port: int = 0,
        operator: str = "somebody",
        bot: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._settings = settings
        self._access = access
        self._port = port
        self._operator = operator
        self._bot = bot
        self._policy = policy
        self._watch: Watch | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Its address on this machine."""
        host = f"[{self._access.host}]" if ":" in self._access.host else self._access.host
        return f"http://{host}:{self._port}/"

    def start(self) -> Console:
        """Start listening; nothing happens where it does already."""
        if self._server is not None:
            return self
        watch = Watch(self._settings)
        audit = Audit(told=watch.acted)
        guard = Guard(self._access, self._operator, audit)
        pages = Pages(self._settings, guard, audit, watch, self._bot, self._policy)
        self._server = _Server(self._access.host, self._port, pages.app())
        self._port = self._server.server_address[1]
        watch.start()
        self._watch = watch
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="console", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening and telling; a request that is being served ends by itself. Idempotent."""
        server, thread, watch = self._server, self._thread, self._watch
        self._server = self._thread = self._watch = None
        if server is None or thread is None or watch is None:
            return
        server.shutdown()
        thread.join()
        server.server_close()
        watch.close()

    def __enter__(self) -> Console:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(console: Console, announce: Callable[[str], None], stop: threading.Event) -> None:
    """Run a console until `stop` is set.

    Args:
        announce: Called with its address once it listens.

    Raises:
        OSError: The address cannot be bound.
    """
    with console:
        announce(console.url)
        stop.wait()
