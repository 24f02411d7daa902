"""Tells operators without a collector how things stand: a log line of figures, and heartbeats on NATS."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from telegram_connector.clock import timestamp
from telegram_connector.events import FiguresTold, HeartbeatUnheard, Observer
from telegram_connector.status import Status

HEARTBEAT_SECONDS = 10.0
LOOK_SECONDS = 1.0
STOP_SECONDS = 1.0  # a report under way waits for nothing but the worker's lock
VERSION = 1


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """That a connector lives; docs/telemetry.md describes its fields."""

    v: int = VERSION
    at: str
    every_seconds: float
    id: str
    host: str
    pid: int
    version: str
    stream: str
    durable: str
    role: Literal["active", "standby"]
    sending: bool
    up_seconds: float
    sent: int
    dropped: int
    outstanding: int
    backlog: int | None
    bot: str | None


class Reporter:
    """A thread that reports.

    Args:
        status: The connector's status of now.
        backlog: How many messages JetStream has handed to nobody yet; None when unknown.
        beat: Publishes a heartbeat; False where there is no connection for it.
        observe: Gets the figures.
        figures_seconds: How often they are told; 0 for never.
        clock: Monotonic seconds.
        wall: Seconds since 1970.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        backlog: Callable[[], int | None],
        beat: Callable[[bytes], bool],
        observe: Observer,
        figures_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._status = status
        self._backlog = backlog
        self._beat = beat
        self._observe = observe
        self._figures_seconds = figures_seconds
        self._clock = clock
        self._wall = wall
        self._told_at = clock()
        self._told = (0, 0, 0)
        self._next_beat = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self._said = ""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - a bug over a report must not stop the relay
                if self._said != repr(error):
                    self._said = repr(error)
                    self._observe(HeartbeatUnheard(f"internal error: {type(error).__name__}"))

    def step(self) -> None:
        """Report what is due now."""
        now = self._clock()
        if now >= self._next_beat and self._beat(self._heartbeat()):
            self._next_beat = now + HEARTBEAT_SECONDS
        if self._figures_seconds and now >= self._told_at + self._figures_seconds:
            self._tell_figures(now)

    def _heartbeat(self) -> bytes:
        status = self._status()
        return msgspec.json.encode(
            Heartbeat(
                at=timestamp(self._wall()),
                every_seconds=HEARTBEAT_SECONDS,
                id=status.id,
                host=status.host,
                pid=status.pid,
                version=status.version,
                stream=status.stream,
                durable=status.durable,
                role=status.role,
                sending=status.sending,
                up_seconds=status.up_seconds,
                sent=status.tally.sent,
                dropped=sum(status.tally.dropped.values()),
                outstanding=status.work.outstanding,
                backlog=self._backlog(),
                bot=_bot(status) or None,
            )
        )

    def _tell_figures(self, now: float) -> None:
        status = self._status()
        totals = (status.tally.sent, status.tally.retried, sum(status.tally.dropped.values()))
        sent, retried, dropped = (new - old for new, old in zip(totals, self._told, strict=True))
        seconds, self._told_at, self._told = now - self._told_at, now, totals
        backlog, bot = self._backlog(), _bot(status)
        # What waits for another connector is that one's to say.
        waits = status.work.outstanding or (status.role == "active" and (backlog or bot))
        if sent or retried or dropped or waits:
            self._observe(
                FiguresTold(
                    seconds,
                    sent,
                    retried,
                    dropped,
                    status.work.outstanding,
                    backlog,
                    status.work.oldest_seconds,
                    status.work.holds_in_all,
                    status.role,
                    bot,
                )
            )


def _bot(status: Status) -> str:
    """Why the bot sends nothing, or by single trials; "" while it sends freely."""
    pauses = status.work.pauses
    if pauses and pauses[0].chat is None:
        return "paused by an operator"
    return status.work.bot.reason if status.work.bot is not None else ""
