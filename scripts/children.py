"""Child processes of a local run: started, listened to, and stopped whatever happens.

Run as a program it is the guard: should the run itself be killed outright, the guard stops what was left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

STOP_SECONDS = 30.0  # the worker's drain takes up to 25
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """We were told to stop."""


class Failed(Exception):
    """The run cannot go on; the text says why."""


class Overdue(Failed):
    """Something did not happen in time."""


class Child:
    """A process and what it printed last."""

    def __init__(self, name: str, process: subprocess.Popen[str], ends: bool) -> None:
        self.name = name
        self.process = process
        self.ends = ends
        self.ended = False
        self.lines: deque[str] = deque(maxlen=15)

    @property
    def end(self) -> str:
        """How it ended, in words."""
        code = self.process.returncode
        if code < 0:
            return f"{self.name} was killed by {signal.Signals(-code).name}"
        return f"{self.name} ended with exit code {code}"

    @property
    def last_words(self) -> str:
        """How it ended, and its last lines."""
        lines = "".join(f"\n  {line}" for line in self.lines)
        return f"{self.end}. Its last lines:{lines}" if lines else f"{self.end} without a word."


class Children:
    """The processes of one run. Leaving the context stops them all, the latest first.

    Each has a session of its own, so that Ctrl-C in a terminal reaches us alone and they end in order.

    Args:
        folder: Removed by the guard if we cannot do it any more.
        hear: Called with each line a child prints, in the main thread.
    """

    def __init__(self, folder: Path, hear: Callable[[Child, str], None]) -> None:
        self._hear = hear
        self._children: list[Child] = []
        # Of lines, ends and signals. Its put is reentrant, so a signal handler may call it.
        self._events: queue.SimpleQueue[tuple[Child, str | None] | signal.Signals] = queue.SimpleQueue()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", __file__, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                signal.signal(number, lambda got, _frame: self._events.put(signal.Signals(got)))

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path, *, ends: bool = False
    ) -> Child:
        """Start a process; unless it `ends`, its end is a failure of the run."""
        process = subprocess.Popen(
            command,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        child = Child(name, process, ends)
        self._children.append(child)
        self._tell_guard(f"+{process.pid}")
        threading.Thread(target=self._read, args=(child,), name=name, daemon=True).start()
        return child

    def run(self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path) -> str:
        """Run a command to its end and return what it printed.

        Raises:
            Failed: It took too long, or its exit code was not 0.
        """
        child = self.start(name, command, env, folder, ends=True)
        self.until(lambda: child.ended or None, f"{name} to end")
        if child.process.returncode:
            raise Failed(child.last_words)
        return "\n".join(child.lines)

    def until(
        self, probe: Callable[[], T | None], what: str, seconds: float = 60.0, pause: float = 0.05
    ) -> T:
        """Ask `probe` again and again until it returns something, watching the children meanwhile.

        Raises:
            Overdue: It took too long.
            Failed: A child ended.
            Interrupted: We were told to stop.
        """
        deadline = time.monotonic() + seconds
        while (found := probe()) is None:
            if time.monotonic() > deadline:
                raise Overdue(f"Waited {seconds:.0f} s for {what}, in vain.")
            self.watch(0.05)
        return found

    def watch(self, seconds: float | None = None) -> None:
        """Wait for something to happen, and take note of all that has.

        Raises:
            Failed: A child ended.
            Interrupted: We were told to stop.
        """
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=seconds)
            while True:
                if isinstance(event, signal.Signals):
                    raise Interrupted(event.name)
                child = self._note(*event)
                if child.ended and not child.ends:
                    raise Failed(child.last_words)
                event = self._events.get_nowait()

    def say(self, text: str) -> None:
        """Print a line; when nobody can read it any more, that is a reason to stop."""
        try:
            print(text, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._events.put(signal.SIGPIPE)

    def __str__(self) -> str:
        return ", ".join(f"{c.name} (pid {c.process.pid})" for c in self._children if not c.ends)

    def stop(self) -> None:
        """Stop all, the latest first, each before the one that it depends on."""
        for child in reversed(self._children):
            for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, None)):
                if not child.ended:
                    child.process.send_signal(number)
                    self._await_end(child, seconds)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def _await_end(self, child: Child, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while not child.ended:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                event = self._events.get(timeout=left)
                if not isinstance(event, signal.Signals):
                    self._note(*event)
                elif event is not signal.SIGPIPE:
                    self.say(f"Stopping already: waiting for {child.name}.")

    def _note(self, child: Child, line: str | None) -> Child:
        if line is None:
            child.ended = True
        else:
            child.lines.append(line)
            self._hear(child, line)
        return child

    def _read(self, child: Child) -> None:
        assert child.process.stdout is not None
        for line in child.process.stdout:
            self._events.put((child, line.rstrip("\n")))
        child.process.wait()
        self._tell_guard(f"-{child.process.pid}")
        self._events.put((child, None))

    def _tell_guard(self, line: str) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            os.write(self._guard.stdin.fileno(), f"{line}\n".encode())

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def guard(folder: Path) -> None:
    """Keep the list of children that standard input tells of; when it ends, stop those that are left."""
    left: list[int] = []
    for line in sys.stdin:
        if line.startswith("+"):
            left.append(int(line))
        else:
            left.remove(-int(line))
    if left:
        with contextlib.suppress(OSError):
            print("The run was killed: stopping what it left.", flush=True)
    for pid in reversed(left):
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 1.0)):
            deadline = time.monotonic() + seconds
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                while _alive(pid) and time.monotonic() < deadline:
                    time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # Dead but not yet collected by its new parent; there is no such file on macOS.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
