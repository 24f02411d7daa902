"""`Records` in memory: the revisions of real buckets, and every way in which asking for them can fail."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from telegram_connector.delivery import Versioned
from telegram_connector.errors import ApiError, Disconnected, RevisionMismatch, Unanswered
from telegram_connector.record import Record, decode
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET

T = TypeVar("T")

DONE = "done"
DISCONNECTED = "disconnected"  # nothing was asked
REFUSED = "refused"  # the server said no
LOST = "lost"  # not done, and nobody said so
UNHEARD = "unheard"  # done, and nobody said so
LATE = "late"  # nobody said so, and it is done at `land`
SILENT = "silent"  # not done, and the future never ends
FATES = (DONE, DISCONNECTED, REFUSED, LOST, UNHEARD, LATE)


@dataclass(frozen=True)
class Asked:
    """One thing that was asked of the buckets; `value` is None for a read."""

    bucket: str
    key: str
    value: bytes | None = None
    revision: int | None = None

    @property
    def is_write(self) -> bool:
        return self.value is not None


class FakeRecords:
    """Implements `Records`. `fate` says what becomes of what is asked; `script` goes before it.

    Attributes:
        fate: Called for each thing asked; may also act, as somebody else who comes in between.
        script: Fates of the next things asked.
        asked: All that was asked, in order.
        late: Writes that are still on their way.
        on_write: Called with (bucket, key, what was there, what is there now) for each write that is done.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, dict[str, Versioned]] = {}
        self._sequences: dict[str, int] = {}
        self.fate: Callable[[Asked], str] = lambda asked: DONE
        self.script: list[str] = []
        self.asked: list[Asked] = []
        self.late: list[Asked] = []
        self.on_write: Callable[[str, str, bytes | None, bytes], None] = lambda *_: None
        for bucket in (LEDGER_BUCKET, LINKS_BUCKET):
            self.provision(bucket)

    # What a test does

    def provision(self, bucket: str) -> None:
        """Make a bucket that is missing; a new one counts from 1."""
        if bucket not in self._buckets:
            self._buckets[bucket], self._sequences[bucket] = {}, 0

    def delete(self, bucket: str) -> None:
        self._buckets.pop(bucket, None)

    def has(self, bucket: str) -> bool:
        return bucket in self._buckets

    def keys(self, bucket: str) -> list[str]:
        return [key for key, found in self._buckets.get(bucket, {}).items() if found.value]

    def get(self, bucket: str, key: str) -> bytes | None:
        found = self._buckets.get(bucket, {}).get(key)
        return found.value if found else None

    def revision(self, bucket: str, key: str) -> int:
        found = self._buckets[bucket].get(key)
        return found.revision if found else 0

    def put(self, bucket: str, key: str, value: bytes) -> int:
        """Write without a fault, whatever is there: as an operator, or another connector."""
        return self._store(Asked(bucket, key, value))

    def records(self) -> list[Record]:
        """All records of the ledger."""
        return [decode(self._buckets[LEDGER_BUCKET][key].value) for key in self.keys(LEDGER_BUCKET)]

    def record(self) -> Record:
        """The one record of the ledger."""
        (record,) = self.records()
        return record

    def land(self) -> None:
        """What is on its way arrives; by now it may be too late for it."""
        arriving, self.late = self.late, []
        for asked in arriving:
            try:
                self._store(asked)
            except ApiError:
                continue

    # Records

    def read(self, bucket: str, key: str) -> Future[Versioned | None]:
        return self._ask(Asked(bucket, key), lambda asked: self._load(asked))

    def write(self, bucket: str, key: str, value: bytes, revision: int | None) -> Future[int]:
        return self._ask(Asked(bucket, key, value, revision), lambda asked: self._store(asked))

    def _ask(self, asked: Asked, do: Callable[[Asked], T]) -> Future[T]:
        self.asked.append(asked)
        future: Future[T] = Future()
        fate = self.script.pop(0) if self.script else self.fate(asked)
        try:
            match fate:
                case "disconnected":
                    raise Disconnected("not connected")
                case "refused":
                    raise ApiError(503, 10077, "insufficient resources")
                case "lost":
                    raise Unanswered("no answer in time")
                case "late":
                    if asked.is_write:
                        self.late.append(asked)
                    raise Unanswered("no answer in time")
                case "silent":
                    return future
            found = do(asked)
            if fate == UNHEARD:
                raise Unanswered("no answer in time")
            future.set_result(found)
        except (Disconnected, ApiError, Unanswered) as error:
            future.set_exception(error)
        return future

    def _load(self, asked: Asked) -> Versioned | None:
        if asked.bucket not in self._buckets:
            raise ApiError(404, 10059, "stream not found")
        return self._buckets[asked.bucket].get(asked.key)

    def _store(self, asked: Asked) -> int:
        assert asked.value is not None
        if asked.bucket not in self._buckets:
            raise ApiError(503, 0, f"nobody answers $KV.{asked.bucket}.{asked.key}")
        before = self._buckets[asked.bucket].get(asked.key)
        last = before.revision if before else 0
        if asked.revision is not None and asked.revision != last:
            raise RevisionMismatch(400, 10071, f"wrong last sequence: {last}")
        self._sequences[asked.bucket] += 1
        self._buckets[asked.bucket][asked.key] = Versioned(asked.value, self._sequences[asked.bucket])
        self.on_write(asked.bucket, asked.key, before.value if before else None, asked.value)
        return self._sequences[asked.bucket]
