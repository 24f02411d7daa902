"""A Bot API that says yes and notes when each message came: the benchmark's, in a process of its own.

It prints its URL. ``GET /receipts/N`` answers once N messages have been accepted, or after ``?within=S``
seconds, with the times of all (seconds of the monotonic clock, which all processes of a machine share), their
bodies, and how many were refused; ``GET /reset?delay=S&flood=telegram`` forgets them, and from then on each
answer takes so long and the sandbox's flood model decides what is accepted.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from urllib.parse import parse_qsl, urlsplit

from telegram_connector.sandbox import flood
from telegram_connector.sandbox.flood import Flood, parse

# The sandbox makes a hold grow for each request that comes during it. Sixteen requests under way at once,
# refused together, would have to wait for hours, which tells nothing about those who sent them.
flood.GROWTH_SECONDS = 0

USER = {"id": 100001, "is_bot": True, "first_name": "Bench", "username": "bench_bot"}
MESSAGE = {
    "message_id": 1,
    "from": USER,
    "chat": {"id": 1, "first_name": "Ada", "type": "private"},
    "date": 1700000000,
    "text": ".",
}
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def response(document: object, status: str = "200 OK") -> bytes:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


SENT = response({"ok": True, "result": MESSAGE})
ME = response({"ok": True, "result": USER})


def refusal(seconds: int) -> bytes:
    return response(
        {
            "ok": False,
            "error_code": 429,
            "description": f"Too Many Requests: retry after {seconds}",
            "parameters": {"retry_after": seconds},
        },
        "429 Too Many Requests",
    )


class Receipts:
    """What has come, and who waits for more of it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, asyncio.Transport]] = []
        self.reset({})

    def reset(self, query: dict[str, str]) -> None:
        self.times: list[float] = []
        self.bodies: list[str] = []
        self.refused = 0
        self.delay = float(query.get("delay", 0.0))
        limits = parse(query.get("flood", "off"))
        self._flood = Flood(limits) if limits else None

    def add(self, body: bytes) -> bytes:
        """Note a message; what it is answered."""
        now = time.monotonic()
        if self._flood is not None:
            # python-telegram-bot sends forms.
            sent = json.loads(body) if body[:1] == b"{" else dict(parse_qsl(body.decode()))
            chat = int(sent["chat_id"])
            wait = self._flood.admit(1, chat, chat < 0, now)
            if wait is not None:
                self.refused += 1
                return refusal(wait)
        self.times.append(now)
        self.bodies.append(body.decode())
        if self.waiting:
            self.tell()
        return SENT

    def wait(self, count: int, within: float, transport: asyncio.Transport) -> None:
        waiter = (count, transport)
        self.waiting.append(waiter)
        self.tell()
        if waiter in self.waiting:
            asyncio.get_running_loop().call_later(within, self._tell_late, waiter)

    def tell(self) -> None:
        for waiter in [w for w in self.waiting if len(self.times) >= w[0]]:
            self._tell_late(waiter)

    def _tell_late(self, waiter: tuple[int, asyncio.Transport]) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)
            document = {"times": self.times, "bodies": self.bodies, "refused": self.refused}
            waiter[1].write(response(document))


class Connection(asyncio.Protocol):
    """One kept-alive connection: just as much of HTTP as the contenders speak."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < whole:
                return
            body, self._buffer = self._buffer[end + 4 : whole], self._buffer[whole:]
            self._answer(head.split(b" ", 2)[1].decode(), body)

    def _answer(self, target: str, body: bytes) -> None:
        if target.endswith("/sendMessage"):
            answer, delay = self._receipts.add(body), self._receipts.delay
            if delay:
                asyncio.get_running_loop().call_later(delay, self._transport.write, answer)
            else:
                self._transport.write(answer)
            return
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        if url.path.startswith("/receipts/"):
            count = int(url.path.rpartition("/")[2])
            self._receipts.wait(count, float(query.get("within", 3600.0)), self._transport)
            return
        if url.path == "/reset":
            self._receipts.reset(query)
        self._transport.write(ME)


async def serve() -> None:
    receipts = Receipts()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(receipts), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
