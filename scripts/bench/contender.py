"""A contender in a process of its own: ``contender.py NAME``, its task as JSON on standard input.

It prints ``ready``, does its work, prints its CPU seconds (user and system, all threads) over its messages
but the first, so that no start counts, and ends when standard input does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from telegram_connector.cli import logs, otel

Task = dict[str, Any]


def bare(task: Task) -> None:
    """What a service does that posts its messages itself: one session, one request after the other.

    It waits as long as it is told to when it is refused.
    """
    import requests

    say("ready")
    session = requests.Session()
    began = 0.0
    for number, body in enumerate(task["bodies"]):
        while (answer := session.post(task["send_url"], json=body)).status_code == 429:
            time.sleep(answer.json()["parameters"]["retry_after"])
        answer.raise_for_status()
        if number == 0:
            began = time.process_time()
    say(f"{time.process_time() - began}")
    sys.stdin.read()


def relay(task: Task) -> None:
    """The whole relay as `telegram-connector run` sets it up, logging to nowhere at INFO."""
    import logging

    from telegram_connector import telemetry
    from telegram_connector.events import Attempted, Event
    from telegram_connector.relay import Relay
    from telegram_connector.settings import Settings

    logging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])
    exports = exporting(task.get("otlp"))
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

    say("ready")
    with Relay(Settings(**task["settings"]), observe), profiled(task.get("profile")):
        sys.stdin.read()
    exports.close(1.0)


def exporting(endpoint: str | None) -> otel.Exports:
    """Traces and metrics as `run` exports them, every second."""
    if endpoint is not None:
        os.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
    return otel.set_up(logs.Scrubber([]))


def ptb(task: Task) -> None:
    """nats-py and python-telegram-bot, put together as their documentation shows.

    The task says how many are sent at once, and whether the library's own limiter is used.
    """
    import asyncio
    import logging
    import warnings

    import nats
    from telegram.ext import AIORateLimiter, ExtBot
    from telegram.request import HTTPXRequest

    logging.basicConfig(level=logging.WARNING, handlers=[logging.NullHandler()])
    warnings.simplefilter("ignore")
    settings, count, at_once = task["settings"], task["count"], task["at_once"]
    limiter = AIORateLimiter(max_retries=100) if task["limiter"] else None

    async def serve() -> None:
        request = HTTPXRequest(connection_pool_size=at_once + 1, pool_timeout=60.0)
        bot = ExtBot(
            settings["bot_token"],
            base_url=f"{settings['api_base_url']}/bot",
            request=request,
            rate_limiter=limiter,
        )
        client = await nats.connect(settings["nats_url"])
        pulled = await client.jetstream().pull_subscribe(
            settings["subject"], durable=settings["durable"], stream=settings["stream"]
        )
        free = asyncio.Semaphore(at_once)
        began, done = 0.0, 0

        async def send(message: Any) -> None:
            nonlocal began, done
            envelope = json.loads(message.data)
            await bot.send_message(int(envelope["chat"]), envelope["text"])
            await message.ack()
            free.release()
            done += 1
            if done == 1:
                began = time.process_time()
            if done == count:
                say(f"{time.process_time() - began}")

        async with bot:
            say("ready")
            sending: set[asyncio.Task[None]] = set()
            while True:
                try:
                    batch = await pulled.fetch(max(10, at_once), timeout=5.0)
                except nats.errors.TimeoutError:
                    continue
                for message in batch:
                    await free.acquire()
                    if at_once == 1:
                        await send(message)
                    else:
                        sending.add(one := asyncio.ensure_future(send(message)))
                        one.add_done_callback(sending.discard)

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    sys.stdin.read()


CONTENDERS: dict[str, Callable[[Task], None]] = {"bare": bare, "relay": relay, "ptb": ptb}


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
