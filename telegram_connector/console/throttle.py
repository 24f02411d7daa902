"""How soon after wrong tokens another one may be tried. Nothing waits: who comes too early is told when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

FREE_TRIES = 5
FREE_TRIES_OF_ALL = 100  # from whatever addresses
LONGEST_SECONDS = 900.0
FORGOTTEN_SECONDS = 3_600.0
MOST_ADDRESSES = 1_000

_ALL = ""


@dataclass
class _Tries:
    wrong: int
    last: float
    until: float


class Throttle:
    """Counts wrong tokens, by address and in all. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tries: dict[str, _Tries] = {}

    def wait_seconds(self, address: str) -> float:
        """How long the address has to wait; 0 for not at all."""
        now = self._clock()
        with self._lock:
            found = [self._tries.get(name) for name in (address, _ALL)]
        return max(
            (tries.until - now for tries in found if tries is not None and tries.until > now), default=0
        )

    def wrong(self, address: str) -> None:
        """A wrong token came from the address."""
        now = self._clock()
        with self._lock:
            self._note(address, FREE_TRIES, now)
            self._note(_ALL, FREE_TRIES_OF_ALL, now)
            while len(self._tries) > MOST_ADDRESSES:
                oldest = min((name for name in self._tries if name), key=lambda name: self._tries[name].last)
                del self._tries[oldest]

    def right(self, address: str) -> None:
        """The right one came: the address begins anew."""
        with self._lock:
            self._tries.pop(address, None)

    def _note(self, name: str, free: int, now: float) -> None:
        known = self._tries.get(name)
        wrong = 1 if known is None or now - known.last > FORGOTTEN_SECONDS else known.wrong + 1
        seconds = min(LONGEST_SECONDS, 2.0 ** min(wrong - free, 20)) if wrong >= free else 0.0
        self._tries[name] = _Tries(wrong, now, now + seconds)
