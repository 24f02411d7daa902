"""What people typed, for getUpdates."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from telegram_connector.sandbox.answers import Answer, refusal, result

# Telegram's own bounds of getUpdates.
MAX_TIMEOUT_SECONDS = 50
MAX_LIMIT = 100

_CONFLICT = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
)


class Updates:
    """A log of updates that every bot reads at its own offset; thread-safe.

    The newest 10,000 are kept.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._log: deque[dict[str, Any]] = deque(maxlen=10_000)
        self._next_id = 1
        self._confirmed: dict[int, int] = {}
        self._turn: dict[int, int] = {}
        self._closed = False

    def add(self, **update: Any) -> int:
        """Adds an update, e.g. ``message={…}``; returns its id."""
        with self._changed:
            number = self._next_id
            self._next_id += 1
            self._log.append({"update_id": number, **update})
            self._changed.notify_all()
            return number

    def get(self, bot_id: int, offset: int, limit: int, timeout_seconds: int) -> Answer:
        """Answers getUpdates: what is new for the bot, waited for up to `timeout_seconds`.

        A second call for the same bot ends the first one with a conflict.
        """
        limit = limit if 1 <= limit <= MAX_LIMIT else MAX_LIMIT
        deadline = time.monotonic() + max(0, min(timeout_seconds, MAX_TIMEOUT_SECONDS))
        with self._changed:
            turn = self._turn[bot_id] = self._turn.get(bot_id, 0) + 1
            self._changed.notify_all()
            self._confirm(bot_id, offset)
            while True:
                if self._turn[bot_id] != turn:
                    return refusal(409, _CONFLICT)
                confirmed = self._confirmed.get(bot_id, 0)
                fresh = [update for update in self._log if update["update_id"] > confirmed][:limit]
                left = deadline - time.monotonic()
                if fresh or left <= 0 or self._closed:
                    return result(fresh)
                self._changed.wait(left)

    def close(self) -> None:
        """Ends every wait; `open` takes it back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def open(self) -> None:
        """Lets waits wait again."""
        with self._changed:
            self._closed = False

    def _confirm(self, bot_id: int, offset: int) -> None:
        if offset < 0:
            # The last -offset updates; all before them are forgotten.
            offset = self._next_id + offset
        self._confirmed[bot_id] = max(self._confirmed.get(bot_id, 0), offset - 1)
