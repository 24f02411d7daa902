"""The ack floor: from where to go on should the durable vanish."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from telegram_connector.bridge.store import Bucket
from telegram_connector.errors import BridgeError

KEY = "ack_floor"


@dataclass(frozen=True)
class Floor:
    """Up to which stream sequence everything is settled, and of which incarnation of the stream.

    A stream that is deleted and made again counts from 1.
    """

    stream_created: str
    sequence: int


class FloorKeeper:
    """Keeps the highest floor heard of, in memory and in the state bucket.

    Args:
        name: Tells the consumers apart that share a bucket.
    """

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket = bucket
        self._name = name
        self._saved: Floor | None = None
        self.floor: Floor | None = None

    def note(self, stream_created: str, consumer_info: dict[str, Any]) -> None:
        """Take the floor from a consumer's info; it never sinks while the stream is the same."""
        floor = Floor(stream_created, int(consumer_info.get("ack_floor", {}).get("stream_seq", 0)))
        known = self.floor
        if known is None or known.stream_created != stream_created or floor.sequence > known.sequence:
            self.floor = floor

    async def load(self) -> Floor | None:
        """The floor: what is known, else what an earlier process left; None for nothing.

        Raises:
            BridgeError: It cannot be read now.
        """
        raw = None if self.floor else await self._bucket.get(f"{KEY}.{self._name}")
        if raw is None:
            return self.floor
        try:
            document = json.loads(raw)
            self.floor = Floor(str(document["stream_created"]), int(document["sequence"]))
        except (ValueError, KeyError, TypeError):
            raise BridgeError(f"{KEY}.{self._name} in bucket {self._bucket.name} cannot be read") from None
        return self.floor

    async def save(self) -> None:
        """Write the floor if it is news.

        Raises:
            BridgeError: It was not written.
        """
        floor = self.floor
        if floor is not None and floor != self._saved:
            await self._bucket.put(f"{KEY}.{self._name}", json.dumps(asdict(floor)).encode())
            self._saved = floor
