"""The messages of a local run, and what became of them."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from children import Failed

# What the sandbox is told about: it takes any well-formed token and knows any chat.
CHAT, OTHER_CHAT, CHAT_OF_BLOCKER = "1001", "-1002", "1003"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_open = build_opener(ProxyHandler({})).open  # it is on this machine, whatever proxy there is


@dataclass(frozen=True)
class Demo:
    """A message to publish, and what should come of it."""

    what: str
    text: str
    chat: str | None = None
    parse_mode: str | None = None
    kind: str = "info"
    is_refused: bool = False
    msg_id: str = field(default_factory=lambda: f"demo-{uuid.uuid4()}")

    @property
    def envelope(self) -> str:
        """Its line in a file of envelopes."""
        names = ("msg_id", "chat", "text", "parse_mode", "kind")
        return json.dumps({name: getattr(self, name) for name in names})


_HTML = '<b>Disk 91% full</b> on <code>db-1</code>: <a href="https://example.org/?a=1&amp;b=2">what to do</a>'

# The messages of a run that stays on this machine, and the one of a run that does not.
LOCAL = (
    Demo("plain text", "Backup finished in 42 s: nothing to do, 3 < 5 & all is well."),
    Demo("HTML", _HTML, parse_mode="HTML", kind="alert"),
    Demo("emoji", "Sold 3 at 17.50 📈🎉 – naïve, café, 日本語", kind="trade"),
    Demo("another chat", "The same bot, another chat.", OTHER_CHAT),
    Demo("a chat that blocked the bot", "You will not read this.", CHAT_OF_BLOCKER, is_refused=True),
)
HELLO = Demo("one message", "Hello from scripts/run_local.sh")


class Witness(Protocol):
    """Knows what became of messages."""

    def outcome(self, demo: Demo) -> str | None:
        """Say what became of a message; None while that is open.

        Raises:
            Failed: Not what should have.
        """


class Sandbox:
    """Asks a sandbox what it got.

    Attributes:
        variables: What makes the connector send to it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.variables = {
            "TELEGRAM_API_BASE_URL": url,
            "TELEGRAM_BOT_TOKEN": "100001:" + "sandbox".ljust(35, "_"),
            "TELEGRAM_CHAT_ID": CHAT,
        }
        self._control("chats", {"id": int(CHAT_OF_BLOCKER), "state": "blocked"})

    def outcome(self, demo: Demo) -> str | None:
        """See `Witness`."""
        chat = demo.chat or CHAT
        try:
            calls = self._control("requests?" + urlencode({"method": "sendMessage", "chat": chat}))
        except OSError:
            return None  # should it have died, that is noticed elsewhere
        for call in calls:
            if call["params"].get("text") == demo.text:
                if call["accepted"] == demo.is_refused:
                    raise Failed(f"{demo.what}: {'accepted' if call['accepted'] else call['answer']}")
                if not demo.is_refused:
                    return f"arrived in chat {chat}, word for word"
                return f"refused as it should be ({json.loads(call['answer'])['description']})"
        return None

    def _control(self, what: str, change: Mapping[str, Any] | None = None) -> Any:
        body, method = (None, "GET") if change is None else (json.dumps(change).encode(), "PUT")
        headers = {"Content-Type": "application/json"}
        with _open(
            Request(f"{self.url}/_sandbox/{what}", body, headers, method=method), timeout=10
        ) as answer:
            return json.load(answer)


class WorkerLog:
    """Reads the worker's lines, which it writes at DEBUG since that is where it says what was sent.

    Args:
        level: The least level to show; "" for INFO and what was sent.
    """

    def __init__(self, level: str) -> None:
        self._least = LEVELS.index(level or "INFO")
        self._shows_sent = not level
        self._settled: dict[str, str] = {}

    def is_worth_showing(self, line: str) -> bool:
        """Take note of a line; returns whether a person should see it."""
        level, words, msg_id = _read(line)
        if words.startswith(("sent", "dropped (")):
            self._settled[msg_id] = words
            return self._shows_sent or LEVELS.index(level) >= self._least
        return level not in LEVELS or LEVELS.index(level) >= self._least

    def outcome(self, demo: Demo) -> str | None:
        """See `Witness`."""
        words = self._settled.get(demo.msg_id)
        if words and not words.startswith("sent"):
            raise Failed(f"{demo.what}: {words}")
        return "accepted by the Bot API" if words else None


def _read(line: str) -> tuple[str, str, str]:
    """Level, words and message id of a line in either format; "" for what it has not."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        entry = json.loads(line)
        return entry["level"], entry["message"], entry.get("nats_msg_id", "")
    level, words = (*line.split(None, 2), "", "", "")[1:3]
    found = re.search(r"nats_msg_id=(\S+)", words)
    return (level, words, found[1] if found else "") if level in LEVELS else ("", "", "")
