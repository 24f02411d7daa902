"""Logging set-up: one line per event on stdout, JSON or text, scrubbed of secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable

from pythonjsonlogger.json import JsonFormatter

from telegram_connector.scrubber import Scrubber as Scrubber

MAX_LINE_BYTES = 8000  # log routers cut longer lines, Heroku's at 10,000 bytes

_TEXT_ATTRIBUTES = ("nats_msg_id", "chat", "kind", "status_code", "attempt", "stream_seq", "duration_ms")


class JsonLines(JsonFormatter):
    """JSON with the time in UTC, cut to what log routers pass on."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__(
            ["levelname", "name", "message"],
            rename_fields={"levelname": "level", "name": "logger"},
            timestamp=True,
            json_ensure_ascii=False,
        )
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        if len(line.encode(errors="replace")) > MAX_LINE_BYTES:
            line = self._shortened(line)
        return self._scrub(line)

    def _shortened(self, line: str) -> str:
        # The longest values are cut first: what is left must still be JSON.
        fields = json.loads(line)
        limit = MAX_LINE_BYTES // 2
        while len(line.encode(errors="replace")) > MAX_LINE_BYTES and limit > 16:
            fields = {
                k: v[:limit] + "…" if isinstance(v, str) and len(v) > limit else v for k, v in fields.items()
            }
            line = json.dumps(fields, ensure_ascii=False, default=str)
            limit //= 2
        return line


class TextLines(logging.Formatter):
    """For people: time, level, words, and the attributes that tell messages apart."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s", "%H:%M:%S")
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        attributes = [
            f"{name}={value}"
            for name in _TEXT_ATTRIBUTES
            if (value := getattr(record, name, None)) not in (None, "")
        ]
        if attributes:
            line += "  " + " ".join(attributes)
        return self._scrub(line)


def set_up(level: str, form: str, secrets: Iterable[str]) -> None:
    """Send all loggers to stdout in the given form (``json`` or ``text``)."""
    scrub = Scrubber(secrets)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(scrub) if form == "json" else TextLines(scrub))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # A traceback that no thread caught would go to stderr past the scrubber.
    sys.excepthook = lambda kind, error, trace: logging.getLogger("telegram_connector").critical(
        "unexpected error", exc_info=(kind, error, trace)
    )
