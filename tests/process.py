"""A command of ours as a real process, its output read as it comes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

PATIENCE_SECONDS = 60.0


class Process:
    """``python -m telegram_connector ...``, or a script, with the given variables of ours alone."""

    def __init__(self, *arguments: str, env: Mapping[str, str], script: Path | None = None) -> None:
        self._changed = threading.Condition()
        self._output = bytearray()
        self._popen = subprocess.Popen(
            [sys.executable, *((str(script),) if script else ("-m", "telegram_connector")), *arguments],
            env={"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/"), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        while chunk := self._popen.stdout.read1(65536):  # type: ignore[attr-defined]
            with self._changed:
                self._output += chunk
                self._changed.notify_all()

    @property
    def output(self) -> str:
        """All that it has printed, on both streams."""
        with self._changed:
            return self._output.decode(errors="replace")

    def until(self, words: str) -> None:
        """Wait until it has printed `words`."""
        with self._changed:
            assert self._changed.wait_for(lambda: words.encode() in self._output, PATIENCE_SECONDS), (
                self._output.decode(errors="replace")
            )

    def until_match(self, pattern: str) -> None:
        """Wait until something that it has printed matches the regular expression."""
        matcher = re.compile(pattern.encode())
        with self._changed:
            assert self._changed.wait_for(lambda: matcher.search(self._output), PATIENCE_SECONDS), (
                self._output.decode(errors="replace")
            )

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        code = self._popen.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        return code

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen.poll() is None:
            self.signal(signal.SIGKILL)
        if self._popen.stdout is not None and not self._popen.stdout.closed:
            self.wait()
