"""What this process has settled for good, remembered for hours.

A server that is killed may forget even confirmed acks (measured: R1 consumer state reaches the disk 50 to
100 ms later), and the message then comes back looking new.
"""

from __future__ import annotations

from telegram_connector.delivery import Ack, DeliveryId, Term

REMEMBER_SECONDS = 6 * 3600.0
REMEMBER_COUNT = 100_000  # some 16 MB; at Telegram's 30 a second about one hour


class SettledMemory:
    """Settled deliveries by (stream, sequence, store timestamp), bounded by age and count."""

    def __init__(self, seconds: float = REMEMBER_SECONDS, count: int = REMEMBER_COUNT) -> None:
        self._seconds = seconds
        self._count = count
        self._settled: dict[DeliveryId, tuple[float, Ack | Term]] = {}

    def remember(self, id_: DeliveryId, command: Ack | Term, now: float) -> None:
        """Note that the delivery was settled by `command` at `now` (monotonic seconds)."""
        self._settled.pop(id_, None)
        self._settled[id_] = (now, command)
        while self._settled:
            oldest = next(iter(self._settled))
            if len(self._settled) <= self._count and self._settled[oldest][0] > now - self._seconds:
                break
            del self._settled[oldest]

    def replace(self, id_: DeliveryId, command: Ack | Term) -> None:
        """Remember another command for a delivery that is known, without counting it as newer."""
        known = self._settled.get(id_)
        if known is not None:
            self._settled[id_] = (known[0], command)

    def settled_by(self, id_: DeliveryId) -> Ack | Term | None:
        """How this process settled the delivery; None when it did not, or that was forgotten."""
        known = self._settled.get(id_)
        return known[1] if known else None
