"""A contender in a process of its own: ``contender.py NAME``, its task as JSON on standard input.

It does its work and prints its CPU seconds (user and system, all threads) over its messages but the first, so
that no start counts. The relay prints ``ready`` before, and ends when standard input does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Task = dict[str, Any]


def bare(task: Task) -> None:
    """What a service does that posts its messages itself: one session, one request after the other."""
    import requests

    session = requests.Session()
    began = 0.0
    for number, body in enumerate(task["bodies"]):
        session.post(task["send_url"], json=body).raise_for_status()
        if number == 0:
            began = time.process_time()
    say(f"{time.process_time() - began}")


def relay(task: Task) -> None:
    """The whole relay as `telegram-connector run` sets it up, logging to nowhere at INFO."""
    import logging

    from telegram_connector import telemetry
    from telegram_connector.events import Attempted, Event
    from telegram_connector.relay import Relay
    from telegram_connector.settings import Settings

    logging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])
    began, seen, count = 0.0, 0, task["count"]

    def observe(event: Event) -> None:
        nonlocal began, seen
        telemetry.log_event(event)
        if isinstance(event, Attempted):
            seen += 1
            if seen == 1:
                began = time.process_time()
            if seen == count:
                say(f"{time.process_time() - began}")

    with Relay(Settings(**task["settings"]), observe), profiled(task.get("profile")):
        say("ready")
        sys.stdin.read()


CONTENDERS: dict[str, Callable[[Task], None]] = {"bare": bare, "relay": relay}


class profiled:  # noqa: N801 - reads as a word
    """Samples all threads' stacks a few hundred times a second, and writes where they were to a file."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._stop = threading.Event()

    def __enter__(self) -> None:
        if self._path:
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._path:
            self._stop.set()
            self._thread.join()

    def _sample(self) -> None:
        from collections import Counter
        from pathlib import Path

        stacks: Counter[str] = Counter()
        while not self._stop.wait(0.003):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident == threading.get_ident():
                    continue
                parts = []
                at: Any = frame
                while at is not None:
                    code = at.f_code
                    parts.append(f"{code.co_filename.rpartition('/')[2]}:{code.co_name}")
                    at = at.f_back
                stacks[";".join([str(names.get(ident)), *reversed(parts)])] += 1
        assert self._path
        Path(self._path).write_text("\n".join(f"{stack} {count}" for stack, count in stacks.most_common()))


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    CONTENDERS[sys.argv[1]](json.loads(sys.stdin.readline()))
