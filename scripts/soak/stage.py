"""The processes of a soak: started, killed, started again, and gone at the end whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nats_server import NatsServer  # noqa: E402

START_SECONDS = 60.0
STOP_SECONDS = 40.0  # a relay's drain takes up to 25

_open = build_opener(ProxyHandler({})).open


class Guard:
    """A process that ends what we started, should we be killed ourselves."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("guard.py")), str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def tell(self, line: str) -> None:
        """``+pid`` was started, ``-pid`` has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def close(self) -> None:
        """All has ended."""
        assert self._process.stdin is not None
        self.tell(".")
        self._process.stdin.close()
        self._process.wait()


class Stage:
    """A nats-server, the sandbox and any number of relays, all on loopback, all their output in a folder.

    Args:
        folder: Where their files are.
        env: Variables of every child; none of ours.
        relay_env: More of them for relays.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], relay_env: Mapping[str, str]) -> None:
        self.folder = folder
        self.api_url = ""
        self._env = dict(env)
        self._relay_env = dict(relay_env)
        self._guard = Guard(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._relays: dict[int, subprocess.Popen[bytes]] = {}
        self._outputs: dict[int, Path] = {}
        self._started = 0
        (folder / "nats").mkdir()
        self.server = NatsServer(folder / "nats")

    def start(self, faults: Sequence[Mapping[str, Any]], relays: int) -> None:
        """Start all of it."""
        self.start_server()
        self.server.provision()
        rules = self.folder / "faults.json"
        rules.write_text(json.dumps({"faults": faults}))
        words = ("sandbox", "--port", "0", "--faults", str(rules))
        sandbox = self._start("sandbox", words, self._env)
        output = self.folder / "sandbox.out"
        deadline = time.monotonic() + START_SECONDS
        while not self.api_url:
            found = [line for line in output.read_text().splitlines() if "TELEGRAM_API_BASE_URL=" in line]
            if found:
                self.api_url = found[0].partition("TELEGRAM_API_BASE_URL=")[2].strip()
            elif sandbox.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the sandbox did not start: {output.read_text()[-2000:]}")
            time.sleep(0.02)
        for number in range(relays):
            self.start_relay(number)

    def start_server(self) -> None:
        """Start the nats-server, with its store of before if any; returns once it answers."""
        self.server.start()
        assert self.server.process is not None
        self._guard.tell(f"+{self.server.process.pid}")

    def kill_server(self) -> None:
        """kill -9."""
        assert self.server.process is not None
        self.server.kill()
        self._guard.tell(f"-{self.server.process.pid}")

    def start_relay(self, number: int) -> None:
        """Start a relay."""
        self._started += 1
        env = {
            **self._env,
            **self._relay_env,
            "NATS_URL": self.server.url,
            "NATS_TELEGRAM_NKEY_SEED": self.server.worker_seed,
            "TELEGRAM_API_BASE_URL": self.api_url,
        }
        name = f"relay-{number}.{self._started}"
        self._outputs[number] = self.folder / f"{name}.out"
        self._relays[number] = self._start(name, ("run",), env)

    def await_started(self, number: int) -> None:
        """Wait until a relay minds signals: before, SIGTERM ends the interpreter as it ends any program."""
        output = self._outputs[number]
        deadline = time.monotonic() + START_SECONDS
        while self._relays[number].poll() is None and time.monotonic() < deadline:
            if "IS NOT TELEGRAM'S" in output.read_text(errors="replace"):
                return
            time.sleep(0.02)

    def end_relay(self, number: int, how: signal.Signals) -> int:
        """Signal a relay and wait for its end; returns its exit code, -9 also when it had to be killed."""
        process = self._relays[number]
        process.send_signal(how)
        return self._await_end(process)

    def ended(self) -> list[str]:
        """Relays that ended by themselves, in words."""
        return [
            f"relay {number} ended with {process.returncode}"
            for number, process in self._relays.items()
            if process.poll() is not None
        ]

    def ask(self, path: str) -> Any:
        """GET from the sandbox's control API."""
        with _open(Request(f"{self.api_url}/_sandbox/{path}"), timeout=120) as answer:
            return json.load(answer)

    def told(self, secrets: Mapping[str, str]) -> list[str]:
        """Where a secret was printed: name of the secret and file."""
        files = [
            *self.folder.glob("*.out"),
            *self.folder.glob("nats/*.log"),
            *self.folder.glob("nats/stderr"),
        ]
        return [
            f"{name} in {path.name} ({count} times)"
            for path in files
            for name, secret in secrets.items()
            if (count := path.read_bytes().count(secret.encode()))
        ]

    def close(self) -> None:
        """End all that still runs, at once."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.server.stop()
        self._guard.close()

    def _start(self, name: str, words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "telegram_connector", *words],
                env=env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard.tell(f"+{process.pid}")
        self._processes.append(process)
        return process

    def _await_end(self, process: subprocess.Popen[bytes]) -> int:
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._guard.tell(f"-{process.pid}")
        return code

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
