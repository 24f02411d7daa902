"""Where the contenders send to: started, asked what came, and forgotten."""

from __future__ import annotations

import http.client
import json
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from telegram_connector.demo.processes import Child, Children, Failed

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Came:
    """What has come: when each message did (seconds), its body, and how many were refused."""

    times: list[float]
    bodies: list[dict[str, Any]]
    refused: int = 0


class Stub(Protocol):
    """What all contenders send to."""

    url: str

    def now(self) -> float:
        """The clock of `receipts`."""

    def reset(self, *, delay: float = 0.0, flood: str = "off") -> None:
        """Forget what came; answers take `delay` seconds from now on, under the sandbox's flood model."""

    def receipts(self, count: int, within: float | None = None) -> Came:
        """Wait for so many messages, or `within` seconds; without that, all of them must come."""


class FastStub:
    """`stub.py`."""

    def __init__(self, children: Children, deadline: float) -> None:
        self._deadline = deadline
        child = children.start("the stub", [sys.executable, str(HERE / "stub.py")], {})
        self.url = first_line(child, deadline)

    def now(self) -> float:
        return time.monotonic()

    def reset(self, *, delay: float = 0.0, flood: str = "off") -> None:
        self._get("/reset?" + urlencode({"delay": delay, "flood": flood}))

    def receipts(self, count: int, within: float | None = None) -> Came:
        query = "" if within is None else f"?within={within}"
        document = json.loads(self._get(f"/receipts/{count}{query}"))
        bodies = [json.loads(body) if body[0] == "{" else form(body) for body in document["bodies"]]
        return Came(document["times"], bodies, document["refused"])

    def _get(self, path: str) -> bytes:
        return fetch(self.url, path, max(1.0, self._deadline - time.monotonic()))


def form(body: str) -> dict[str, Any]:
    """A body as python-telegram-bot sends it."""
    return dict(parse_qsl(body))


class SandboxStub:
    """The sandbox, whose own cost then counts."""

    def __init__(self, children: Children, deadline: float) -> None:
        self._deadline = deadline
        command = [sys.executable, "-m", "telegram_connector", "sandbox", "--port", "0"]
        child = children.start("the sandbox", command, {"PYTHONUNBUFFERED": "1"})
        while not (line := first_line(child, deadline)).startswith("TELEGRAM_API_BASE_URL="):
            pass
        self.url = line.partition("=")[2]

    def now(self) -> float:
        return time.time()

    def reset(self, *, delay: float = 0.0, flood: str = "off") -> None:
        if delay or flood != "off":
            raise Failed("this is measured with --stub fast only")
        fetch(self.url, "/_sandbox/clear", 10.0, "POST")

    def receipts(self, count: int, within: float | None = None) -> Came:
        left = max(1.0, self._deadline - time.monotonic())
        fetch(self.url, f"/_sandbox/wait?count={count}&timeout={left:.0f}", left + 5)
        calls = json.loads(fetch(self.url, "/_sandbox/requests?method=sendMessage&accepted=true", left + 5))
        return Came([call["at"] for call in calls], [call["params"] for call in calls])


STUBS: dict[str, Callable[[Children, float], Stub]] = {"fast": FastStub, "sandbox": SandboxStub}


def first_line(child: Child, deadline: float) -> str:
    try:
        return child.lines.get(timeout=max(0.1, deadline - time.monotonic())).strip()
    except queue.Empty:
        raise Failed(f"{child.name} said nothing") from None


def fetch(url: str, path: str, seconds: float, verb: str = "GET") -> bytes:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=seconds)
    try:
        connection.request(verb, path)
        return connection.getresponse().read()
    except TimeoutError:
        raise Failed(f"the stub did not get all messages within {seconds:.0f} s") from None
    finally:
        connection.close()
