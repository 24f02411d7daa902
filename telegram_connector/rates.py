"""How much a minute, over the last minutes. Pure: `now` is an argument, in monotonic seconds."""

from __future__ import annotations

from collections import deque

BUCKET_SECONDS = 5.0
LONGEST_MINUTES = 15


class Rate:
    """Counts by moments of some seconds, those of the last quarter of an hour."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, int]] = deque()  # (number of the moment, count), ascending

    def note(self, now: float) -> None:
        """Count one more."""
        number = int(now // BUCKET_SECONDS)
        if self._buckets and self._buckets[-1][0] >= number:
            last, count = self._buckets.pop()
            self._buckets.append((last, count + 1))
            return
        self._buckets.append((number, 1))
        oldest = number - LONGEST_MINUTES * 60 / BUCKET_SECONDS
        while self._buckets[0][0] <= oldest:
            self._buckets.popleft()

    def per_minute(self, now: float, minutes: int) -> float:
        """How many a minute over the last `minutes`; a process that is younger counts as idle before."""
        after = int(now // BUCKET_SECONDS) - minutes * 60 / BUCKET_SECONDS
        return sum(count for number, count in self._buckets if number > after) / minutes
