"""The demo's processes: a nats-server of its own and one worker after the other."""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from telegram_connector.demo import guard
from telegram_connector.settings import NatsSettings

STOP_SECONDS = 5.0


class Failed(Exception):
    """The demo cannot go on; the text says why."""


class Interrupted(Exception):
    """The demo was told to stop."""


class Child:
    """A process, the lines it prints, and the last of them."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.last: deque[str] = deque(maxlen=15)
        self._process = process
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def fail_if_ended(self) -> None:
        """Raises:
        Failed: It has ended.
        """
        if not self.running:
            self._reader.join(STOP_SECONDS)
            words = "".join(f"\n  {line}" for line in self.last)
            raise Failed(f"{self.name} ended with exit code {self._process.returncode}{words}")

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._collect()

    def stop(self) -> None:
        """End it in order; by force if that takes too long."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def _collect(self) -> None:
        self._process.wait()
        self._reader.join(STOP_SECONDS)
        assert self._process.stdout is not None
        if not self._reader.is_alive():
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last.append(line.rstrip("\n"))
            self.lines.put(line)


class Children:
    """All processes of a demo; leaving the context ends them, the latest first.

    Each has a session of its own, so that Ctrl-C in a terminal reaches only us.

    Args:
        folder: Removed by the guard should we be killed.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._children: list[Child] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Child:
        """Start a process with `env` added to the environment that all have."""
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            env={**self._env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._tell_guard(f"+{process.pid}")
        child = Child(name, process)
        self._children.append(child)
        return child

    def kill(self, child: Child) -> None:
        """kill -9 one of them."""
        child.kill()
        self._forget(child)

    def _forget(self, child: Child) -> None:
        self._children.remove(child)
        self._tell_guard(f"-{child.pid}")

    def _tell_guard(self, line: str) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.write(f"{line}\n")
            self._guard.stdin.flush()

    def __enter__(self) -> Children:
        self._guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", guard.__file__, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(list(self._children)):
            child.stop()
            self._forget(child)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()


class NatsServer:
    """A nats-server on loopback with JetStream, in a folder, behind a password nobody else has."""

    def __init__(self, binary: str, folder: Path, children: Children) -> None:
        self._folder = folder
        self._password = secrets.token_hex(16)
        config = folder / "server.conf"
        config.touch(0o600)
        config.write_text(
            f"""
            listen: "127.0.0.1:-1"
            ports_file_dir: {json.dumps(str(folder))}
            jetstream {{ store_dir: {json.dumps(str(folder / "store"))} }}
            authorization {{ user: demo, password: "{self._password}" }}
            """
        )
        self.child = children.start("nats-server", [binary, "-c", str(config)], {})

    def settings(self, ack_wait_seconds: float) -> NatsSettings | None:
        """How to reach it; None as long as it does not say where it listens."""
        with contextlib.suppress(StopIteration, ValueError, LookupError, OSError):
            ports = json.loads(next(self._folder.glob("*.ports")).read_text())
            address = str(ports["nats"][0]).partition("://")[2]
            url = f"nats://demo:{self._password}@{address}"
            return NatsSettings(nats_url=url, ack_wait_seconds=ack_wait_seconds)
        return None


def start_worker(children: Children, nats: NatsSettings, api_base_url: str, chat: int) -> Child:
    """Start ``telegram-connector run`` as a process of its own, writing JSON lines."""
    return children.start(
        "the worker",
        [sys.executable, "-m", "telegram_connector", "run"],
        {
            "TELEGRAM_BOT_TOKEN": "100001:" + "demo".ljust(35, "_"),
            "TELEGRAM_CHAT_ID": str(chat),
            "TELEGRAM_API_BASE_URL": api_base_url,
            "NATS_URL": nats.nats_url,
            "TG_ACK_WAIT_SECS": f"{nats.ack_wait_seconds:g}",
            # The new worker takes over from the one that was killed after a second instead of fifteen.
            "TG_STANDBY_TAKEOVER_SECS": "1",
            "TG_DRAIN_SECS": f"{STOP_SECONDS - 1:g}",
            "LOG_LEVEL": "INFO",
            "LOG_FORMAT": "json",
            "PYTHONUNBUFFERED": "1",
            "PYTHONUTF8": "1",
        },
    )


def read_line(line: str) -> Mapping[str, object]:
    """The attributes of a worker's line; its text as ``message`` where it is not JSON."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {"message": line.strip()}
