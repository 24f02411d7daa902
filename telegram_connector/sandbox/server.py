"""The sandbox at work: a context manager for tests, and a blocking call for the command line."""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from telegram_connector.sandbox.app import Application
from telegram_connector.sandbox.clock import Clock
from telegram_connector.sandbox.control import control_app
from telegram_connector.sandbox.desk import ChatsSource, Desk, FaultsSource, FloodSource, read_faults
from telegram_connector.sandbox.wire import Server

# How often the accepting thread looks whether it shall stop; a connection wakes it at once.
_POLL_SECONDS = 0.02


class Sandbox(Desk):
    """A Bot API to develop and test against.

    ::

        with Sandbox() as sandbox:
            requests.post(f"{sandbox.url}/bot1:x/sendMessage", json={"chat_id": 5, "text": "hi"})
            assert sandbox.wait(count=1)[0].raw_text == "hi"

    Args:
        port: 0 takes a free one, and keeps it through `stop` and `start`.
        host: Address to listen on.
        chats: A chats file's path, chats, or their JSON objects.
        faults: A faults file's path, rules, their JSON objects, or texts such as ``flood:chat=5,times=1``.
        flood: Flood control: ``off`` (also None), ``telegram``, ``strict``, three figures, or limits.
        strict: Whether only declared chats exist.
        clock: The time by which messages are dated and floods counted; None runs with the machine.
        keep: How many messages and calls are kept; the oldest go first.

    Raises:
        ValueError: Chats, faults or flood are not as they should be.
        OSError: From `start`: the address cannot be bound.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        chats: ChatsSource | None = None,
        faults: FaultsSource | None = None,
        flood: FloodSource = None,
        strict: bool = False,
        clock: Clock | None = None,
        keep: int = 50_000,
    ) -> None:
        super().__init__(chats=chats, faults=faults, flood=flood, strict=strict, clock=clock, keep=keep)
        self._host = host
        self._port = port
        self._application = Application(self.world, self.rules, control_app(self))
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Port it listens on; 0 before the first start where a free one was asked for."""
        return self._port

    @property
    def url(self) -> str:
        """Base URL of the Bot API, without a slash at its end."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def start(self) -> Sandbox:
        """Starts listening; does nothing where it listens already."""
        if self._server is not None:
            return self
        if not _loopback(self._host):
            sys.stderr.write(
                f"warning: the sandbox listens on {self._host}, which others may reach; it has no password\n"
            )
        self._server = Server(self._host, self._port, self._application)
        self._port = self._server.port
        self.world.record.open()
        self.world.updates.open()
        self.world.timeline.open()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="sandbox", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops listening and ends every connection; what was received stays. Idempotent."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._server = self._thread = None
        self.world.record.close()
        self.world.updates.close()
        self.world.timeline.close()
        server.stop()
        thread.join()

    def __enter__(self) -> Sandbox:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    host: str,
    port: int,
    chats_file: str | Path | None,
    faults_file: str | Path | None,
    flood: str,
    strict: bool,
    announce: Callable[[str], None],
    stop: threading.Event,
    faults: Sequence[str] = (),
) -> None:
    """Runs a sandbox until `stop` is set.

    Args:
        host: Address to listen on.
        port: Port, 0 for a free one.
        chats_file: Path of a chats file.
        faults_file: Path of a faults file.
        flood: ``off``, ``telegram``, ``strict`` or three figures.
        strict: Whether only declared chats exist.
        announce: Called with each line to show once it listens.
        stop: Ends it.
        faults: Further rules, as texts such as ``flood:chat=5,times=1``.

    Raises:
        ValueError: A file, a rule or `flood` is not as it should be.
        OSError: A file cannot be read, or the address cannot be bound.
    """
    rules = (*read_faults(faults_file), *read_faults(faults))
    with Sandbox(port, host=host, chats=chats_file, faults=rules, flood=flood, strict=strict) as sandbox:
        announce(f"The page: {sandbox.url}/")
        announce(f"Sandbox Bot API on {sandbox.url} (not Telegram's; nothing leaves this machine)")
        announce(f"TELEGRAM_API_BASE_URL={sandbox.url}")
        stop.wait()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
