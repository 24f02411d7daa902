"""Lengths of time as people write and read them, and how old something may be. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST = timedelta(days=36_500)
LONGEST_SECONDS = 365 * 86_400.0


def read_length(text: str) -> timedelta:
    """A length of time as people write it: ``90s``, ``15m``, ``2h``, ``3d``, ``1w``, or ``1d12h``.

    Raises:
        ValueError: It is none; the text is for people.
    """
    if not re.fullmatch(r"([0-9]{1,9}[smhdw])+", text):
        raise ValueError(f"{text!r} is no length of time: write 90s, 15m, 2h, 3d, 1w or 1d12h")
    seconds = sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)([smhdw])", text))
    if seconds > _LONGEST.total_seconds():
        raise ValueError(f"{text!r} is more than a century")
    return timedelta(seconds=seconds)


def read_duration(text: str) -> float:
    """Seconds that something is to last, from words like 90s, 10m, 1h30m or 2d, up to a year.

    Raises:
        ValueError: It is none; the text is for people.
    """
    seconds = read_length(text).total_seconds()
    if not 0 < seconds <= LONGEST_SECONDS:
        raise ValueError(f"{text!r} is not within a second and a year")
    return seconds


def lasting(seconds: float) -> str:
    """About so long, in its two largest units."""
    left = max(0, round(seconds))
    shown: list[str] = []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, _UNITS[unit])
        if number or (unit == "s" and not shown):
            shown.append(f"{number}{unit}")
    return "".join(shown[:2])


def age(at: datetime, now: datetime) -> str:
    """How long ago, in its largest unit: ``45s``, ``12m``, ``3h``, ``9d``."""
    seconds = max(0, int((now - at).total_seconds()))
    unit = next((u for u in ("d", "h", "m") if seconds >= _UNITS[u]), "s")
    return f"{seconds // _UNITS[unit]}{unit}"


@dataclass(frozen=True)
class Ages:
    """Between which ages something is looked for; None for no bound."""

    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    def __bool__(self) -> bool:
        return self.older_than is not None or self.newer_than is not None

    def hold(self, at: datetime, now: datetime) -> bool:
        """Whether what happened at `at` (with an offset) is within them at `now`."""
        age = now - at
        return (self.older_than is None or age > self.older_than) and (
            self.newer_than is None or age < self.newer_than
        )
