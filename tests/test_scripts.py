"""The scripts as a developer runs them; each test uses this Python's environment instead of making one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.sandbox import Sandbox
from tests.nats_server import NatsServer

ROOT = Path(__file__).parents[1]
SCRIPTS = [*sorted(ROOT.glob("scripts/*.sh")), ROOT / ".ci" / "run"]
COMMANDS = [path for path in SCRIPTS if path.name != "venv.sh"]  # that one is sourced
SECONDS = 100.0  # for whatever is waited for; far more than it takes
CHILDREN = {"nats-server", "sandbox", "worker"}
TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"  # of Telegram's documentation


class LocalRun:
    """scripts/run_local.sh at work in a process group of its own, its temporary directory in `folder`."""

    def __init__(self, folder: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.seen: list[str] = []
        self._process = subprocess.Popen(
            [str(ROOT / "scripts" / "run_local.sh"), *options],
            env={**os.environ, "READY_PYTHON": sys.executable, "TMPDIR": str(folder), **(env or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
        )
        # Should it hang, its end ends the reading.
        self._timer = threading.Timer(SECONDS, self.send, [signal.SIGKILL])
        self._timer.daemon = True
        self._timer.start()

    @property
    def output(self) -> str:
        return "\n".join(self.seen)

    @property
    def children(self) -> dict[str, int]:
        """The process ids of its children, by name."""
        return {name: int(pid) for name, pid in re.findall(r"([\w-]+) \(pid (\d+)\)", self.output)}

    def read_until(self, words: str) -> str:
        """Read until a line has these words, and return it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.seen.append(line.rstrip("\n"))
            if words in line:
                return self.seen[-1]
        raise AssertionError(f"it ended without {words!r}:\n{self.output}")

    def send(self, number: int) -> None:
        """Signal its process group, as a terminal does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def end(self) -> int:
        """Read the rest, and return the exit code."""
        assert self._process.stdout is not None
        if not self._process.stdout.closed:
            self.seen += [line.rstrip("\n") for line in self._process.stdout]
            self._process.stdout.close()
        code = self._process.wait()
        self._timer.cancel()
        return code

    def assert_nothing_left(self) -> None:
        assert set(self.children) <= CHILDREN
        for name, pid in self.children.items():
            assert not _alive(pid), f"{name} still runs"
        assert list(self.folder.iterdir()) == []


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Any]:
    """Starts runs, and ends those that a failed test left."""
    started: deque[LocalRun] = deque()

    def start(*options: str, env: Mapping[str, str] | None = None) -> LocalRun:
        started.append(LocalRun(tmp_path, *options, env=env))
        return started[-1]

    yield start
    for run in started:
        run.send(signal.SIGTERM)
        run.end()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize("script", COMMANDS, ids=lambda path: path.name)
def test_commands_are_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.integration
def test_once_delivers_and_ignores_a_production_environment(runs: Any) -> None:
    ambient = {
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "TELEGRAM_CHAT_ID": "987654321",
        "NATS_URL": "nats://nats.production.example:4222",
        "NATS_CREDS": "secret-credentials",
        "TG_SUBJECT": "production.subject",
    }
    run = runs("--once", env=ambient)
    assert run.end() == 0, run.output
    assert run.seen[0].startswith("Ignored")
    for name, value in ambient.items():
        assert name in run.seen[0]
        assert value not in run.output
    assert run.seen[1].startswith("See the chats in a browser: http://127.0.0.1:")
    assert run.seen[2].startswith("Sandbox Bot API: http://127.0.0.1:")
    assert run.output.count("word for word") == 4
    assert "refused as it should be (Forbidden: bot was blocked by the user)" in run.output
    assert set(run.children) == CHILDREN
    run.assert_nothing_left()


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_stops_everything_worker_first(runs: Any, number: int) -> None:
    run = runs()
    run.read_until("Ctrl-C stops all of it")
    run.send(number)
    assert run.end() == 0, run.output
    assert "gave 0 messages back unsent" in run.output  # the worker's drain
    assert set(run.children) == CHILDREN
    run.assert_nothing_left()


@pytest.mark.integration
def test_the_line_to_paste_publishes_whatever_the_shell_has_set(runs: Any) -> None:
    ambient = {"NATS_CREDS": "secret-credentials", "TG_SUBJECT": "production.subject"}
    run = runs(env=ambient)
    run.read_until("Publish from another terminal:")
    line = run.read_until("publish")
    run.read_until("Ctrl-C stops all of it")
    pasted = subprocess.run(
        ["bash", "-c", line], env={**os.environ, **ambient}, capture_output=True, text=True, check=False
    )
    assert pasted.returncode == 0, pasted.stderr
    msg_id = pasted.stdout.split()[0]
    assert " sent " in run.read_until(msg_id)
    run.send(signal.SIGINT)
    assert run.end() == 0, run.output
    run.assert_nothing_left()


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted(CHILDREN))
def test_a_dying_child_is_reported_and_ends_the_run(runs: Any, name: str) -> None:
    run = runs()
    run.read_until("Ctrl-C stops all of it")
    os.kill(run.children[name], signal.SIGKILL)
    assert run.end() == 1, run.output
    assert f"{name} was killed by SIGKILL. Its last lines:" in run.output
    run.assert_nothing_left()


@pytest.mark.integration
def test_nothing_outlives_a_run_that_is_killed(runs: Any) -> None:
    run = runs()
    run.read_until("Ctrl-C stops all of it")
    run.send(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL  # having read until the guard, who holds the other end, was through
    assert set(run.children) == CHILDREN
    run.assert_nothing_left()


@pytest.mark.integration
def test_a_real_bot_is_named_and_used_when_asked_for(runs: Any) -> None:
    with Sandbox() as sandbox:
        ambient = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_CHAT_ID": "42",
            "TELEGRAM_API_BASE_URL": sandbox.url,
            "NATS_URL": "nats://nats.production.example:4222",
        }
        run = runs("--telegram", "--yes", "--once", env=ambient)
        assert run.end() == 0, run.output
        assert [message.chat_id for message in sandbox.messages()] == [42]
    assert run.seen[0].endswith(": NATS_URL")
    assert "@sandbox_110201543_bot" in run.output
    assert "chat 42" in run.output
    assert TOKEN not in run.output
    assert set(run.children) == CHILDREN - {"sandbox"}
    run.assert_nothing_left()


@pytest.mark.integration
def test_a_real_server_is_named_and_used_when_asked_for(runs: Any, nats_server: NatsServer) -> None:
    ambient = {"NATS_URL": nats_server.url, "NATS_TELEGRAM_NKEY_SEED": nats_server.root_seed}
    run = runs("--nats", "--yes", "--once", env=ambient)
    assert run.end() == 0, run.output
    assert nats_server.consumer()["ack_floor"]["stream_seq"] == 1
    assert nats_server.url.partition("//")[2] in run.output
    assert nats_server.root_seed not in run.output
    assert set(run.children) == CHILDREN - {"nats-server"}
    run.assert_nothing_left()


def test_a_real_server_is_not_used_unasked(runs: Any) -> None:
    ambient = {"NATS_URL": "nats://nats.production.example:4222", "NATS_AUTH": "none"}
    run = runs("--nats", "--once", env=ambient)
    assert run.end() == 1
    assert "nats.production.example:4222" in run.output
    assert "give --yes if that is meant" in run.output
    assert run.children == {}


def test_asking_for_what_is_not_there_is_a_clear_error(runs: Any) -> None:
    run = runs("--telegram", "--once")
    assert run.end() == 1
    assert run.seen == ["--telegram needs TELEGRAM_BOT_TOKEN and TELEGRAM_CHAT_ID in the environment."]


def test_no_python_that_will_do_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").touch()
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 127\n")  # as a shim of a version manager does
    (tmp_path / "python3").chmod(0o755)
    result = _use_venv(tmp_path)
    assert result.returncode == 1
    assert "Python 3.10 or later is needed" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_python_without_venv_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").touch()
    (tmp_path / "python3").write_text(
        f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\nexec "{sys.executable}" "$@"\n'
    )
    (tmp_path / "python3").chmod(0o755)
    result = _use_venv(tmp_path)
    assert result.returncode == 1
    assert f"python3.{sys.version_info[1]}-venv" in result.stderr
    assert not (tmp_path / ".venv").exists()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # Dead but not yet collected by its new parent; there is no such file on macOS.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True


def _use_venv(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run venv.sh with nothing but `folder` and the bare tools on the search path."""
    for tool in ("cat", "rm", "cmp", "cp"):
        found = next(p for d in os.defpath.split(os.pathsep) if (p := Path(d) / tool).exists())
        (folder / tool).symlink_to(found)
    return subprocess.run(
        ["/bin/bash", "-euc", f'. "{ROOT}/scripts/venv.sh"; use_venv local'],
        cwd=folder,
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
