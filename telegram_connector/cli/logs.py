"""Logging set-up: one line per event on stdout, JSON or text, scrubbed of secrets."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TextIO

from pythonjsonlogger.json import JsonFormatter

from telegram_connector.scrubber import Scrubber as Scrubber

MAX_LINE_BYTES = 8000  # log routers cut longer lines, Heroku's at 10,000 bytes
REPEAT_SECONDS = 60.0
SHORTEST = 16  # of a value that is cut

_TEXT_ATTRIBUTES = ("nats_msg_id", "chat", "kind", "status_code", "attempt", "stream_seq", "duration_ms")
_COLOURS = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}


class JsonLines(JsonFormatter):
    """JSON with the time in UTC, cut to what log routers pass on."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s",  # 3.1 understands no list of names
            rename_fields={"levelname": "level", "name": "logger"},
            timestamp=True,
            json_ensure_ascii=False,
        )
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        # Before it is cut: half a secret is one still, and no longer known for one.
        line = self._scrub(super().format(record))
        return line if _size(line) <= MAX_LINE_BYTES else _shortened(line)


def _shortened(line: str) -> str:
    # The longest values are cut first: what is left must still be JSON.
    fields = json.loads(line)
    limit = MAX_LINE_BYTES // 2
    while _size(line) > MAX_LINE_BYTES and limit > SHORTEST:
        fields = {name: _cut(value, limit) for name, value in fields.items()}
        line = json.dumps(fields, ensure_ascii=False, default=str)
        limit //= 2
    if _size(line) > MAX_LINE_BYTES:  # so many attributes that their names alone are too much
        kept = {name: fields[name] for name in ("level", "logger", "message", "timestamp") if name in fields}
        line = json.dumps(kept, ensure_ascii=False, default=str)
    return line


def _cut(value: object, limit: int) -> object:
    """Beginning and end of what is too long: the end of a traceback says what happened."""
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value
    if not isinstance(text, str) or len(text) <= limit:
        return value
    return f"{text[: limit // 2]} … {text[-limit // 2 :]}"


def _size(line: str) -> int:
    return len(line.encode(errors="replace"))


class Repeats(logging.Filter):
    """Passes what one place of an SDK's says once a minute, with how often it was said since.

    An exporter whose collector is down complains of each export.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[str, int], float] = {}
        self._more: Counter[tuple[str, int]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("opentelemetry"):
            return True
        place, now = (record.pathname, record.lineno), self._clock()
        if now < self._said.get(place, float("-inf")) + REPEAT_SECONDS:
            self._more[place] += 1
            return False
        self._said[place] = now
        if more := self._more.pop(place, 0):
            record.repeated = more
        return True


class TextLines(logging.Formatter):
    """For people: time, level, words, and the attributes that tell messages apart."""

    def __init__(self, scrub: Scrubber, *, colour: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s", "%H:%M:%S")
        self._scrub = scrub
        self._colour = colour

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        line = super().formatMessage(record)
        attributes = [
            f"{name}={value}"
            for name in _TEXT_ATTRIBUTES
            if (value := getattr(record, name, None)) not in (None, "")
        ]
        if attributes:
            line += "  " + " ".join(attributes)
        # Publishers choose a msg_id: it must neither look like a line of ours nor command a terminal.
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)

    def format(self, record: logging.LogRecord) -> str:
        line = self._scrub(super().format(record))
        if _size(line) > MAX_LINE_BYTES:
            line = line.encode(errors="replace")[: MAX_LINE_BYTES - 3].decode(errors="ignore") + "…"
        colour = _COLOURS.get(record.levelno)
        return f"\x1b[{colour}m{line}\x1b[0m" if self._colour and colour else line


def set_up(level: str, form: str, secrets: Iterable[str]) -> None:
    """Send all loggers to stdout in the given form (``json`` or ``text``)."""
    scrub = Scrubber(secrets)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Else a locale's encoding would lose each line with a character that it lacks. JSON is UTF-8.
        sys.stdout.reconfigure(encoding="utf-8" if form == "json" else None, errors="backslashreplace")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        JsonLines(scrub) if form == "json" else TextLines(scrub, colour=_in_colour(sys.stdout))
    )
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # A traceback that no thread caught would go to stderr past the scrubber.
    sys.excepthook = lambda kind, error, trace: logging.getLogger("telegram_connector").critical(
        "unexpected error", exc_info=(kind, error, trace)
    )


def _in_colour(stream: TextIO) -> bool:
    """On a terminal that can, unless NO_COLOR (https://no-color.org) says otherwise."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
