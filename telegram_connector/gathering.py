"""Texts gathered into few messages: the same one counted, others beside it. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

PAUSE_CAP_SECONDS = 600.0  # between two messages about the same kind, however long it goes on
NOTE_LENGTH = 100  # kept free in a message for what is said of drops
COUNT_LENGTH = 30  # and in each text for how often it came
CUT = "\n[...]\n"
_HEAD_SHARE = 4  # a quarter of a cut text is its beginning, the rest its end: tracebacks end with the error


@dataclass
class _Kind:
    text: str
    due: float
    pause: float
    count: int = 0


class Gathering:
    """What waits to be said.

    The first of a kind is due at once; after that the kind is due again after a pause, which doubles for as
    long as it goes on. Between any two messages there is the first pause at least.

    Args:
        capacity: Kinds that may wait at a time; more are dropped and counted.
        pause_seconds: The first pause.
        limit: Characters of one message.
    """

    def __init__(self, capacity: int, pause_seconds: float, limit: int) -> None:
        self._capacity = capacity
        self._pause = pause_seconds
        self._limit = limit
        self._kinds: dict[Hashable, _Kind] = {}
        self._not_before = float("-inf")
        self._dropped = 0

    @property
    def waiting(self) -> bool:
        """Whether there is anything to be said, now or later."""
        return self._dropped > 0 or any(kind.count for kind in self._kinds.values())

    def add(self, key: Hashable, text: str, now: float) -> None:
        """Take in a text; of those with an equal key only the last is kept, and their count."""
        kind = self._kinds.get(key)
        if kind is not None and not kind.count and now >= kind.due:
            kind = None  # it has been quiet for a whole pause: it starts anew
        if kind is None:
            if key not in self._kinds and not self._make_room():
                self._dropped += 1
                return
            kind = self._kinds[key] = _Kind("", now, self._pause)
        kind.text = shortened(text, self._limit - NOTE_LENGTH - COUNT_LENGTH)
        kind.count += 1

    def due_at(self) -> float | None:
        """When `take` has something; None when nothing waits."""
        times = [kind.due for kind in self._kinds.values() if kind.count]
        if self._dropped:
            times.append(self._not_before)
        return max(min(times), self._not_before) if times else None

    def take(self, now: float, *, at_once: bool = False) -> str | None:
        """The next message, of all that is due and fits; None when nothing is due.

        Args:
            at_once: Whether to disregard the pauses.
        """
        due_at = self.due_at()
        if due_at is None or (now < due_at and not at_once):
            return None
        parts: list[str] = []
        room = self._limit - NOTE_LENGTH
        for kind in self._kinds.values():
            if not kind.count or (now < kind.due and not at_once):
                continue
            said = f"[{kind.count} times] {kind.text}" if kind.count > 1 else kind.text
            if parts and len(said) + 2 > room:
                break
            parts.append(said)
            room -= len(said) + 2
            kind.count, kind.due, kind.pause = 0, now + kind.pause, min(2 * kind.pause, PAUSE_CAP_SECONDS)
        if self._dropped:
            parts.append(f"[{self._dropped} more were dropped: too many different ones at once]")
            self._dropped = 0
        self._not_before = now + self._pause
        return "\n\n".join(parts)

    def _make_room(self) -> bool:
        """Make sure that one kind more may wait; forgets a quiet one if need be."""
        if len(self._kinds) < self._capacity:
            return True
        quiet = next((key for key, kind in self._kinds.items() if not kind.count), None)
        return quiet is not None and self._kinds.pop(quiet) is not None


def shortened(text: str, limit: int) -> str:
    """The text, or where it is longer than `limit` its beginning and its end."""
    if len(text) <= limit:
        return text
    head = (limit - len(CUT)) // _HEAD_SHARE
    return text[:head] + CUT + text[len(text) - (limit - len(CUT) - head) :]
