"""Who did what: a log line for each action, and the last of them for the page. No text of a message."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from telegram_connector.clock import timestamp
from telegram_connector.wording import visible

KEPT = 200
MOST_IDS = 50  # in one entry; all are counted

logger = logging.getLogger("telegram_connector.console")


@dataclass(frozen=True)
class Entry:
    """One action.

    Attributes:
        at: When, RFC 3339.
        who: By whom.
        address: From where.
        action: What, e.g. ``dead.resend``.
        ids: Of what.
        count: Of how many.
        result: What came of it.
        ok: Whether it was done.
    """

    at: str
    who: str
    address: str
    action: str
    ids: Sequence[str]
    count: int
    result: str
    ok: bool


class Audit:
    """Notes actions. Thread-safe.

    Args:
        wall: Seconds since 1970.
        told: Called after each.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, told: Callable[[], object] = lambda: None
    ) -> None:
        self._wall = wall
        self._told = told
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque(maxlen=KEPT)

    def note(self, who: str, address: str, action: str, ids: Sequence[str], result: str, ok: bool) -> None:
        """Write it down."""
        shown = [visible(one)[:300] for one in ids[:MOST_IDS]]
        words = visible(result)[:500]
        entry = Entry(timestamp(self._wall()), who, address, action, shown, len(ids), words, ok)
        with self._lock:
            self._entries.append(entry)
        about = {
            "event": "console_action",
            "action": action,
            "who": who,
            "address": address,
            "ids": shown,
            "count": len(ids),
            "result": words,
            "ok": ok,
        }
        if ok:
            logger.info("console: %s by %s: %s", action, who, words, extra=about)
        else:
            logger.warning("console: %s by %s was not done: %s", action, who, words, extra=about)
        self._told()

    def newest(self) -> list[Entry]:
        """The last ones, the newest first."""
        with self._lock:
            return list(reversed(self._entries))
