"""How far this machine's clock is from others'. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from telegram_connector.checkup.finding import Finding

CLOCK = "clock"

# Holds that are kept, expiry and the times of messages are wall-clock; a Date header has whole seconds.
MAX_SKEW_SECONDS = 5.0


@dataclass(frozen=True)
class Reading:
    """What another clock said.

    Attributes:
        whose: Whose clock it is.
        ahead_seconds: How far it is ahead of ours.
        doubt_seconds: How wrong that may be.
    """

    whose: str
    ahead_seconds: float
    doubt_seconds: float


def reading(whose: str, said: float, asked_at: float, answered_at: float, step: float = 0.0) -> Reading:
    """A reading from one exchange.

    Args:
        whose: Whose clock it is.
        said: What it said, cut to multiples of `step`; like the following in seconds of the epoch.
        asked_at: When we asked, by our clock.
        answered_at: When the answer was there.
        step: Resolution of `said`, in seconds.
    """
    ahead = said + step / 2 - (asked_at + answered_at) / 2
    return Reading(whose, ahead, (answered_at - asked_at + step) / 2)


def judge(readings: Iterable[Reading]) -> Finding:
    """Whether this machine's clock agrees with the others."""
    read = tuple(readings)
    off = [r for r in read if abs(r.ahead_seconds) - r.doubt_seconds > MAX_SKEW_SECONDS]
    if off:
        words = " and ".join(
            f"{abs(r.ahead_seconds):.0f} s {'behind' if r.ahead_seconds > 0 else 'ahead of'} {r.whose}"
            for r in off
        )
        return Finding(
            CLOCK, "warning", f"this machine is {words}: holds and expiry of messages go by its clock"
        )
    known = [r for r in read if r.doubt_seconds <= MAX_SKEW_SECONDS]
    if not known:
        return Finding(CLOCK, "skipped", "skipped: nobody told the time soon enough")
    words = " and ".join(
        f"within {max(0.1, abs(r.ahead_seconds) + r.doubt_seconds):.1f} s of {r.whose}" for r in known
    )
    return Finding(CLOCK, "ok", words)


def epoch_seconds(text: object) -> float | None:
    """The time of an RFC 3339 text as nats-server writes it (UTC, nanoseconds); None for anything else."""
    if not isinstance(text, str):
        return None
    parts = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z", text)
    if parts is None:
        return None
    whole = datetime.fromisoformat(parts[1]).replace(tzinfo=timezone.utc)
    return whole.timestamp() + float(parts[2] or 0)
