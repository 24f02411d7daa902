"""A check-up of settings, Bot API and NATS before a worker is started: looks at all, changes nothing.

No message is sent, nothing is created, nothing bound: it may run beside a worker, under its credentials.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from telegram_connector.checkup import bot, broker, skew
from telegram_connector.checkup.finding import Finding, Severity, skip
from telegram_connector.settings import Settings

__all__ = ["NAMES", "SETTINGS", "Finding", "Severity", "check_up", "not_checked"]

SETTINGS = "settings"
NAMES = (*bot.BotCheck.names, *broker.BrokerCheck.names, skew.CLOCK)  # what comes after the settings

BUDGET_SECONDS = 20.0


def not_checked(why: str) -> Iterator[Finding]:
    """Findings for a check-up that ends with its settings."""
    return skip(NAMES, why)


def check_up(
    settings: Settings, *, budget_seconds: float = BUDGET_SECONDS, wall: Callable[[], float] = time.time
) -> Iterator[Finding]:
    """Look at everything, the Bot API and NATS at the same time; findings come as they are known.

    Args:
        settings: As for the relay, not dormant.
        budget_seconds: Longest time that all of it may take, whatever hangs.
        wall: This machine's clock, in seconds of the epoch.
    """
    deadline = time.monotonic() + budget_seconds
    sides = (bot.BotCheck(settings, deadline, wall), broker.BrokerCheck(settings, wall))
    coming = [(side, _started(side.findings)) for side in sides]
    for side, findings in coming:
        yield from _collected(side.names, findings, deadline, budget_seconds)
    yield skew.judge([reading for side in sides for reading in side.readings])


def _started(findings: Callable[[], Iterator[Finding]]) -> queue.SimpleQueue[Finding | Exception | None]:
    """Have findings made on a thread; None ends them.

    Nobody joins the thread: it may hang in a look-up of a host name, which nothing can interrupt.
    """
    found: queue.SimpleQueue[Finding | Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            for finding in findings():
                found.put(finding)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            found.put(error)
        found.put(None)

    threading.Thread(target=run, name="check-up", daemon=True).start()
    return found


def _collected(
    names: Sequence[str],
    findings: queue.SimpleQueue[Finding | Exception | None],
    deadline: float,
    budget_seconds: float,
) -> Iterator[Finding]:
    missing = list(names)
    while True:
        try:
            finding = findings.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if missing:
                yield Finding(missing[0], "fault", f"no answer within {budget_seconds:g} s")
                yield from skip(missing[1:], f"{missing[0]} did not answer")
            return
        if finding is None:
            return
        if isinstance(finding, Exception):
            raise finding
        missing.remove(finding.name)
        yield finding
