"""What a check found: one line's worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["ok", "note", "warning", "fault", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        severity: ``fault``: the worker would not do its work; ``warning``: not all of it, or not for long;
            ``note``: it could not be told, or need not be; ``skipped``: something before it failed.
        detail: In words, without secrets; for faults with the setting or the command that mends them.
    """

    name: str
    severity: Severity
    detail: str

    @property
    def ok(self) -> bool | None:
        """Whether all is as it should be; None where that is not known."""
        return {"ok": True, "warning": False, "fault": False}.get(self.severity)


def skip(names: Iterable[str], why: str) -> Iterator[Finding]:
    """Findings for what was not looked at."""
    return (Finding(name, "skipped", f"skipped: {why}") for name in names)
