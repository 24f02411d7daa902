"""A Bot API that says yes at once and notes when each message came: the benchmark's, in a process of its own.

It prints its URL. ``GET /receipts/N`` answers once N messages have come, with the times of all (seconds of
the monotonic clock, which all processes of a machine share) and their bodies; ``GET /reset`` forgets them.
"""

from __future__ import annotations

import asyncio
import json
import re
import time

ANSWER = (
    b'{"ok":true,"result":{"message_id":1,"from":{"id":100001,"is_bot":true,"first_name":"Bench",'
    b'"username":"bench_bot"},"chat":{"id":1,"first_name":"Ada","type":"private"},"date":1700000000,"text":"."}}'
)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


SENT = response(ANSWER)


class Receipts:
    """What has come, and who waits for more of it."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.bodies: list[str] = []
        self.waiting: list[tuple[int, asyncio.Transport]] = []

    def add(self, body: bytes) -> None:
        self.times.append(time.monotonic())
        self.bodies.append(body.decode())
        if self.waiting:
            self.tell()

    def tell(self) -> None:
        for count, transport in list(self.waiting):
            if len(self.times) >= count:
                self.waiting.remove((count, transport))
                document = {"times": self.times, "bodies": self.bodies}
                transport.write(response(json.dumps(document).encode()))


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
            self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path.endswith(b"/sendMessage"):
            self._receipts.add(body)
            self._transport.write(SENT)
        elif path.startswith(b"/receipts/"):
            self._receipts.waiting.append((int(path.rpartition(b"/")[2]), self._transport))
            self._receipts.tell()
        else:
            if path == b"/reset":
                self._receipts.times.clear()
                self._receipts.bodies.clear()
            self._transport.write(SENT)


async def serve() -> None:
    receipts = Receipts()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(receipts), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
