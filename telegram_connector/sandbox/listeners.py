"""Who looks on: server-sent events, for so many pages at most, and for none that does not keep up."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from telegram_connector.sandbox.timeline import Change, Timeline

MAX_LISTENERS = 32
# A page that takes nothing for so long is dropped; it asks again from where it was.
SLOW_SECONDS = 10.0
HEARTBEAT_SECONDS = 10.0

_RECONNECT_MS = 500

Render = Callable[[Change], "dict[str, Any]"]


class Listeners:
    """The connections on which events go out; thread-safe."""

    def __init__(self, most: int = MAX_LISTENERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    def admit(self, connection: socket.socket) -> bool:
        """Takes one more, unless there are too many that still listen."""
        with self._lock:
            if len(self._connections) >= self._most:
                self._connections = {other for other in self._connections if _is_there(other)}
            if len(self._connections) >= self._most:
                return False
            self._connections.add(connection)
            return True

    def leave(self, connection: socket.socket) -> None:
        """Makes room; nothing happens where it has left already."""
        with self._lock:
            self._connections.discard(connection)


def stream(
    timeline: Timeline,
    after: str,
    connection: socket.socket,
    listeners: Listeners,
    render: Render,
    now: Callable[[], float],
) -> Iterator[bytes]:
    """The events for one page, until it goes away or the sandbox stops.

    ``hello`` comes first, ``reset`` where the page must start over; then ``entry``, ``clear`` and ``state``
    as they happen, each with an id to go on from, and ``beat`` when nothing did.

    Args:
        timeline: What is told.
        after: The id to go on from, or "".
        connection: Where it goes; a write that takes too long ends the iteration by an OSError.
        listeners: Left at the end.
        render: A change's data.
        now: The sandbox's time.
    """
    connection.settimeout(SLOW_SECONDS)
    try:
        run, _, number = after.partition("-")
        at = int(number) if run == timeline.run and number.isdigit() else None
        yield b"retry: %d\n\n" % _RECONNECT_MS + _event("hello", {"run": timeline.run, "now": now()})
        while not timeline.closed:
            changes = None if at is None else timeline.since(at, HEARTBEAT_SECONDS)
            if changes is None:
                # What was missed is not known any more: the page asks for all of it anew.
                at = timeline.last
                yield _event("reset", {}, f"{timeline.run}-{at}")
            elif changes:
                at = changes[-1].number
                yield b"".join(
                    _event(change.kind, render(change), f"{timeline.run}-{change.number}")
                    for change in changes
                )
            else:
                yield _event("beat", {"now": now()})
    finally:
        listeners.leave(connection)


def _event(kind: str, data: dict[str, Any], number: str = "") -> bytes:
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _is_there(connection: socket.socket) -> bool:
    """Whether the other side has not hung up; a page never says anything."""
    if connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))
    return not poll.poll(0)
