"""Run as a program, with a folder: when standard input ends, kills the processes it told of and removes it.

So a demo that is killed outright leaves nothing behind. It knows nothing of the package: it runs isolated.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

KILL = 9


def guard(folder: str) -> None:
    """Keep the list: ``+pid`` began, ``-pid`` was collected."""
    left: list[int] = []
    for line in sys.stdin:
        if line.startswith("+"):
            left.append(int(line))
        else:
            left.remove(-int(line))
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, KILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(sys.argv[1])
