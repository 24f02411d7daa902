"""Who looks on: server-sent events with how things stand, for so many pages at most."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec

from telegram_connector.console.watch import Picture, Watch

MAX_LISTENERS = 32
HEARTBEAT_SECONDS = 5.0

_RECONNECT_MS = 500


class Listeners:
    """Counts the pages that look on. Thread-safe."""

    def __init__(self, most: int = MAX_LISTENERS) -> None:
        self._free = threading.BoundedSemaphore(most)

    def told(self, watch: Watch, still_there: Callable[[], bool]) -> Told | None:
        """The events for one more page; None where there are too many.

        Args:
            still_there: Whether the page's session goes on.
        """
        return Told(watch, still_there, self._free.release) if self._free.acquire(blocking=False) else None


class Told:
    """The events for one page, until it goes away, its session ends, or the console stops.

    ``picture`` is how things stand, with the picture's number as id; ``beat`` says that nothing is new, and
    ``ended`` that the session is over.

    Args:
        leave: Called once at the end.
    """

    def __init__(self, watch: Watch, still_there: Callable[[], bool], leave: Callable[[], object]) -> None:
        self._watch = watch
        self._still_there = still_there
        self._leave = leave
        self._lock = threading.Lock()
        self._is_over = False

    def __iter__(self) -> Iterator[bytes]:
        number = -1
        yield b"retry: %d\n\n" % _RECONNECT_MS
        while not self._is_over:
            picture = self._watch.after(number, HEARTBEAT_SECONDS)
            if picture is None:
                return
            if not self._still_there():
                yield b"event: ended\ndata: {}\n\n"
                return
            yield b"event: beat\ndata: {}\n\n" if picture.number == number else _event(picture)
            number = picture.number

    def close(self) -> None:
        """Make room for another; idempotent."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if not was_over:
            self._leave()


def _event(picture: Picture) -> bytes:
    data = msgspec.json.encode(
        {
            "overview": picture.overview,
            "trouble": picture.trouble,
            "setting": picture.setting,
            "acted": picture.acted,
        }
    )
    return b"event: picture\ndata: %s\n\n" % data
