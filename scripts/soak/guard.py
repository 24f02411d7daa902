"""Ends the processes of a soak that was killed itself: hears of them on standard input."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path


def guard(folder: Path) -> None:
    """Listen until the end: ``+pid`` was started, ``-pid`` has ended, ``.`` all is well."""
    left: list[int] = []
    for line in sys.stdin:
        if line == ".\n":
            return
        if line.startswith("+"):
            left.append(int(line))
        elif -int(line) in left:
            left.remove(-int(line))
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
