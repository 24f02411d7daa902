"""The clock that leases are measured by, and times as they are written down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

JUMP_SECONDS = 1.0  # smaller differences between the two clocks are scheduling noise and slewing


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LeaseClock:
    """Seconds that run at least as fast as the monotonic and the wall clock.

    A machine that was suspended, or a virtual machine that was frozen, may find its monotonic clock where it
    left it while the server's went on: a delivery that seems ours has been handed to somebody else. A forward
    jump of the wall clock therefore counts as elapsed time. A clock that is merely set forward makes leases
    lapse early, which costs a redelivery and never a message.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()
        self._jumped = 0.0
        self._offset = wall() - monotonic()

    def __call__(self) -> float:
        """Now, in seconds from an arbitrary start; never goes back."""
        with self._lock:
            monotonic = self._monotonic()
            jump = self._wall() - monotonic - self._offset
            if abs(jump) > JUMP_SECONDS:
                self._offset += jump
                self._jumped += max(jump, 0.0)
            return monotonic + self._jumped
