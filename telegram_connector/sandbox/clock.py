"""The sandbox's clock: real time, or a time that a test moves by hand."""

from __future__ import annotations

import threading
import time


class Clock:
    """Tells the sandbox's time: message dates, flood control and slow mode read it, waits do not.

    Thread-safe. Runs with the machine's clock until it is frozen; then it moves only by `advance` and `set`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = 0.0
        self._frozen_at: float | None = None

    @classmethod
    def frozen(cls, at: float = 1_700_000_000.0) -> Clock:
        """A clock that stands still at `at` (Unix seconds) until it is moved."""
        clock = cls()
        clock.set(at)
        return clock

    def now(self) -> float:
        """The time, in Unix seconds."""
        with self._lock:
            return time.time() + self._offset if self._frozen_at is None else self._frozen_at

    def advance(self, seconds: float) -> float:
        """Moves the clock by `seconds`; it goes on running or standing as it did. Returns the new time."""
        with self._lock:
            if self._frozen_at is None:
                self._offset += seconds
            else:
                self._frozen_at += seconds
        return self.now()

    def set(self, at: float) -> None:
        """Stops the clock at `at` (Unix seconds)."""
        with self._lock:
            self._frozen_at = float(at)

    def run(self) -> None:
        """Lets the clock run again with the machine's clock."""
        with self._lock:
            self._frozen_at = None
            self._offset = 0.0

    @property
    def standing(self) -> bool:
        """Whether the clock stands still."""
        with self._lock:
            return self._frozen_at is not None
