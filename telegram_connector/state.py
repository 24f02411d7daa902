"""What must outlive the process besides the stream: failed attempts, migrations and holds, a document each.

Kept in memory and written behind: losing the last write costs a message one more attempt, a group one more
answer that names its new id, or a flooded chat one send that comes early.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from telegram_connector.delivery import DeliveryId, Store
from telegram_connector.errors import BridgeError
from telegram_connector.events import Observer, StateUnavailable
from telegram_connector.pauses import KEY as PAUSES_KEY

ATTEMPTS_KEY = "attempts"
MIGRATIONS_KEY = "migrations"
HOLDS_KEY = "holds"
LOAD_SECONDS = 2.0
PAUSES_SECONDS = 1.0
LOAD_AGAIN_SECONDS = 10.0
MAX_ATTEMPTS_KEPT = 5_000  # some 300 kB; a message of NATS holds 1 MiB

T = TypeVar("T")


@dataclass(frozen=True)
class Left:
    """What an earlier process left.

    Attributes:
        holds: Until when chats must not be sent to, in seconds since 1970: no monotonic clock outlives its
            machine.
    """

    attempts: dict[DeliveryId, int]
    moved: dict[str, str]
    holds: dict[str, float]


class State:
    """Failed attempts by delivery, where groups have moved, and holds. Not thread-safe: `worker` locks.

    Args:
        store: Where it is kept; see `Store`.
        scope: Tells connectors apart that share a store.
    """

    def __init__(self, store: Store, observe: Observer, scope: str = "") -> None:
        self._store = store
        self._scope = f".{scope}" if scope else ""
        self._observe = observe
        self._attempts: dict[DeliveryId, int] = {}
        self._moved: dict[str, str] = {}
        self._holds: dict[str, float] = {}
        self._dirty: set[str] = set()
        self._writing: dict[str, Future[None]] = {}
        self._said: dict[str, str] = {}
        self.loaded = False

    def fetch(self) -> Left | None:
        """Read what earlier processes left: blocks up to some seconds; None when it cannot be read now."""
        try:
            attempts = self._store.get(ATTEMPTS_KEY + self._scope).result(LOAD_SECONDS)
            moved = self._store.get(MIGRATIONS_KEY + self._scope).result(LOAD_SECONDS)
            holds = self._store.get(HOLDS_KEY + self._scope).result(LOAD_SECONDS)
        except (BridgeError, FutureTimeoutError) as error:
            self._say("", f"cannot be read: {str(error) or 'no answer'}")
            return None
        self._say("", "")
        rows = self._read(ATTEMPTS_KEY, attempts, list[tuple[str, int, int, int]]) or []
        moves = self._read(MIGRATIONS_KEY, moved, dict[str, str]) or {}
        return Left(
            {DeliveryId(stream, seq, at): count for stream, seq, at, count in rows},
            moves,
            self._read(HOLDS_KEY, holds, dict[str, float]) or {},
        )

    def fetch_pauses(self) -> bytes | None:
        """Read what operators have paused, which commands write; ``b""`` for nothing, None for no answer."""
        try:
            return self._store.get(PAUSES_KEY + self._scope).result(PAUSES_SECONDS) or b""
        except (BridgeError, FutureTimeoutError):
            return None  # `fetch` says what is wrong with the store

    def adopt(self, left: Left, floor: int) -> None:
        """Take over what `fetch` read, without the attempts of what is settled by now."""
        since = self._attempts
        self._attempts = {i: n for i, n in left.attempts.items() if i.sequence > floor}
        for id_, count in since.items():
            self._attempts[id_] = self._attempts.pop(id_, 0) + count
        self._bound()
        self._moved = left.moved | self._moved
        self._holds = left.holds | self._holds
        self.loaded = True

    def attempts(self, id_: DeliveryId) -> int:
        """How many attempts of this message have failed."""
        return self._attempts.get(id_, 0)

    def failed(self, id_: DeliveryId) -> int:
        """Count one failure more; returns the new figure."""
        self._attempts[id_] = self._attempts.pop(id_, 0) + 1
        self._bound()
        self._dirty.add(ATTEMPTS_KEY)
        return self._attempts[id_]

    def settled(self, id_: DeliveryId) -> None:
        """Forget the attempts of a message that is settled for good."""
        if self._attempts.pop(id_, None) is not None:
            self._dirty.add(ATTEMPTS_KEY)

    def moved(self, old: str, new: str) -> None:
        """Remember a migration."""
        self._moved[old] = new
        self._dirty.add(MIGRATIONS_KEY)

    def held(self, chat: str, until: float, now: float) -> None:
        """Remember a hold until `until`, both in seconds since 1970; forgets those that are over."""
        self._holds = {c: u for c, u in self._holds.items() if u > now}
        self._holds[chat] = max(until, self._holds.get(chat, until))
        self._dirty.add(HOLDS_KEY)

    def leave(self) -> None:
        """Somebody else keeps the state from now on: what is here is written, and read again when needed."""
        self.flush()
        self._attempts = {}
        self._holds = {}
        self._dirty.clear()
        self.loaded = False

    def flush(self) -> list[Future[None]]:
        """Start writing what has changed; a document that is being written waits for the next call."""
        for key in list(self._writing):
            if self._writing[key].done():
                error = self._writing.pop(key).exception()
                if error is not None:
                    self._dirty.add(key)
                self._say(key, "" if error is None else f"{key} cannot be written: {error}")
        if not self.loaded:
            return []  # what is in memory is not the whole: writing it would lose the rest
        for key in sorted(self._dirty - self._writing.keys()):
            self._dirty.discard(key)
            self._writing[key] = self._store.put(key + self._scope, self._document(key))
        return list(self._writing.values())

    def _say(self, about: str, reason: str) -> None:
        """Report what is wrong when it changes, not per try; "" for all is well."""
        if reason and reason != self._said.get(about):
            self._observe(StateUnavailable(reason))
        self._said[about] = reason

    def _bound(self) -> None:
        while len(self._attempts) > MAX_ATTEMPTS_KEPT:
            del self._attempts[next(iter(self._attempts))]

    def _read(self, key: str, document: bytes | None, type_: type[T]) -> T | None:
        if not document:
            return None
        try:
            return msgspec.json.decode(document, type=type_)
        except (msgspec.DecodeError, ValueError, RecursionError):  # no ValueError in msgspec 0.18
            self._observe(StateUnavailable(f"{key}: not readable by this version; starts empty"))
            return None

    def _document(self, key: str) -> bytes:
        if key == MIGRATIONS_KEY:
            return msgspec.json.encode(self._moved)
        if key == HOLDS_KEY:
            return msgspec.json.encode(self._holds)
        return msgspec.json.encode([(*id_, count) for id_, count in self._attempts.items()])
