"""Who is logged in: sessions that end by themselves, kept in memory."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

IDLE_SECONDS = 3_600.0
LONGEST_SECONDS = 43_200.0
MOST = 200  # at once; the one that was used longest ago goes first


@dataclass(frozen=True)
class Session:
    """Somebody who may use the page.

    Attributes:
        who: Who that is, for the record.
        csrf: What every change has to come with.
        opened: When, monotonic seconds.
        used: When it was used last.
    """

    who: str
    csrf: str
    opened: float
    used: float


class Sessions:
    """The sessions of one run. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}  # by the hash of what the browser holds

    def open(self, who: str) -> tuple[str, Session]:
        """A new session, and the secret by which it is found."""
        now, secret = self._clock(), secrets.token_urlsafe(32)
        session = Session(who, secrets.token_urlsafe(32), now, now)
        with self._lock:
            self._forget(now)
            while len(self._sessions) >= MOST:
                del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used)]
            self._sessions[_key(secret)] = session
        return secret, session

    def find(self, secret: str, *, use: bool = True) -> Session | None:
        """The session of a secret; None where it is over.

        Args:
            use: Whether somebody does something, which keeps it from ending.
        """
        now, key = self._clock(), _key(secret)
        with self._lock:
            self._forget(now)
            session = self._sessions.get(key)
            if session is not None and use:
                session = self._sessions[key] = replace(session, used=now)
            return session

    def close(self, secret: str) -> None:
        """End a session; nothing happens where it is over."""
        with self._lock:
            self._sessions.pop(_key(secret), None)

    def _forget(self, now: float) -> None:
        self._sessions = {
            key: session
            for key, session in self._sessions.items()
            if now - session.used < IDLE_SECONDS and now - session.opened < LONGEST_SECONDS
        }


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
