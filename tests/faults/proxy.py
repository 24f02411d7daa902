"""A TCP proxy between a client and nats-server that can lose, hold, delay and add bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

CHUNK_BYTES = 65536
ANSWER_SECONDS = 30.0


class Connection:
    """One connection through the proxy; used on the proxy's loop only.

    Attributes:
        silent: What either side sends is swallowed, and TCP stays up.
        stalled: What either side sends is not even read.
        cut_at_answer: The server's next word is swallowed and the connection reset.
    """

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.silent = False
        self.cut_at_answer = False
        self.stalled = False
        self.moving = asyncio.Event()
        self.moving.set()

    def stall(self) -> None:
        """Read nothing any more."""
        self.stalled = True
        self.moving.clear()

    def cut(self) -> None:
        """Reset both sides."""
        self.client.transport.abort()
        self.server.transport.abort()


Tap = Callable[[Connection, bytes], bool]


class Proxy:
    """Listens on a port of its own and passes connections on to `target`.

    Attributes:
        delay_seconds: By how much every byte is late, each way.
        tap: Sees what clients send before it is passed on; False swallows it.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.delay_seconds = 0.0
        self.tap: Tap | None = None
        self.accepted = 0
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK_BYTES)  # else it takes in megabytes
        self._server = self._run(asyncio.start_server(self._accept, sock=listening))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_SECONDS)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were aborted end in the next turn

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(ANSWER_SECONDS)

    # What can be done to the connections there are; new ones pass

    def _each(self, do: Callable[[Connection], None]) -> int:
        done: Future[int] = Future()

        def work() -> None:
            for connection in list(self._connections):
                do(connection)
            done.set_result(len(self._connections))

        self._loop.call_soon_threadsafe(work)
        return done.result(ANSWER_SECONDS)

    def cut(self) -> None:
        """Reset them."""
        assert self._each(Connection.cut)

    def silence(self) -> None:
        """A black hole both ways, while TCP stays up."""
        assert self._each(lambda c: setattr(c, "silent", True))

    def stall(self) -> None:
        """Read nothing any more, so that the client's bytes stay unsent."""

        assert self._each(Connection.stall)

    def inject(self, words: bytes) -> None:
        """Say something to the clients in the server's name."""
        assert self._each(lambda c: c.client.write(words))

    # On the loop

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            client.transport.abort()
            return
        connection = Connection(client, server)
        self._connections.add(connection)
        pumps = [
            asyncio.ensure_future(self._pump(connection, reader, server, True)),
            asyncio.ensure_future(self._pump(connection, from_server, client, False)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if not connection.silent and not connection.stalled:
            await asyncio.sleep(self.delay_seconds)
            connection.cut()
        # A side that has gone is not told to the other by a black hole: that one hears of it at the end.
        await asyncio.wait(pumps)
        self._tasks.difference_update(pumps)
        connection.cut()
        self._connections.discard(connection)

    async def _pump(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool
    ) -> None:
        with contextlib.suppress(OSError):
            # What asyncio reads ahead is bounded by the reader's limit; the rest stays in the client.
            while data := await reader.read(CHUNK_BYTES):
                await connection.moving.wait()
                if connection.silent:
                    continue
                if up and self.tap is not None and not self.tap(connection, data):
                    continue
                if not up and connection.cut_at_answer:
                    connection.cut()
                    return
                if self.delay_seconds:
                    self._loop.call_later(self.delay_seconds, writer.write, data)
                else:
                    writer.write(data)
