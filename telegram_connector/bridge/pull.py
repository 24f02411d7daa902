"""The pull request: connected and wanting means exactly one live pull.

nats-py's `fetch` hides deletion, leader changes and restarts behind its timeout, and with a batch above one
can stall with the message in hand (measured). Here each request has a reply subject of its own, and its
status messages are read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from telegram_connector.bridge.link import Link
from telegram_connector.errors import BridgeError
from telegram_connector.topology import NS

EXPIRES_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
UNSERVED_PAUSE_SECONDS = 0.25  # a leader election takes some seconds
REFUSED_PAUSE_SECONDS = 5.0
PASSING = ("leadership change", "server shutdown", "maxwaiting")  # what a 409 may say that ends by itself


class ConsumerGoneError(BridgeError):
    """Raised when the server says that the consumer was deleted."""


class Pull:
    """Asks for as many deliveries as are wanted, one request at a time, over one link.

    Args:
        suspect: Called when nobody served the request: the consumer may be gone.
        refused: Called with the server's words when it will not serve us, which only an operator can mend.
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        durable: str,
        wanted: Callable[[], int],
        deliver: Callable[[Msg], None],
        suspect: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._link = link
        self._wanted = wanted
        self._suspect = suspect
        self._refused = refused
        self._refusal = ""
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._deliver = deliver
        self._inbox = link.new_inbox()
        self._subscription: Subscription | None = None
        self._poke = asyncio.Event()
        self._number = 0
        self._missing = 0
        self._over: asyncio.Future[str] | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._closed = False
        self.live = False

    def poke(self) -> None:
        """More may be wanted now."""
        self._poke.set()

    async def run(self) -> None:
        """Pull until cancelled.

        Raises:
            ConsumerGoneError: The consumer was deleted.
            BridgeError: The link failed.
        """
        self._subscription = await self._link.subscribe(f"{self._inbox}.*", self._on_message)
        self._link.on_denied(self._subject, self._deny)
        while True:
            # `live` goes down before the figure is read: whoever raises it and still sees `live` up can
            # rely on its being read.
            self.live = False
            self._poke.clear()
            wanted = self._wanted()
            if wanted <= 0 or self._closed:
                await self._poke.wait()
                continue
            self.live = True
            how = await self._one(wanted)
            if how == "gone":
                raise ConsumerGoneError("the server says that the consumer was deleted")
            if how == "unserved":
                self._suspect()
                await asyncio.sleep(UNSERVED_PAUSE_SECONDS)
            if how == "refused":
                self._refused(self._refusal)
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    async def _one(self, batch: int) -> str:
        self._number += 1
        self._missing = batch
        self._over = asyncio.get_running_loop().create_future()
        self._listen()
        request = {
            "batch": batch,
            "expires": int(EXPIRES_SECONDS * NS),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * NS),
        }
        try:
            await self._link.publish(
                self._subject, json.dumps(request).encode(), reply=f"{self._inbox}.{self._number}"
            )
            return await self._over
        finally:
            if self._silence:
                self._silence.cancel()

    async def _on_message(self, msg: Msg) -> None:
        self._listen()
        if not msg.subject.startswith(f"{self._inbox}."):
            # A delivery keeps the subject it was published to. Its headers are the publisher's, so a
            # ``Status`` among them means nothing.
            self._missing -= 1
            try:
                self._deliver(msg)
            finally:
                if self._missing <= 0:
                    self._finish("full")
            return
        headers = msg.headers or {}
        status = headers.get("Status")
        if status != "100" and msg.subject == f"{self._inbox}.{self._number}":
            description = headers.get("Description", "")
            if "consumer deleted" in description.lower():
                self._finish("gone")
            elif status in ("404", "408"):
                self._finish("expired")
            elif status in ("400", "409") and not any(words in description.lower() for words in PASSING):
                self._deny(description)
            else:  # 409: leadership change, max waiting; 423; 503: nobody there now
                self._finish("unserved")

    def _deny(self, words: str) -> None:
        self._refusal = words
        self._finish("refused")

    def _listen(self) -> None:
        """A sign of life: the next is due within two heartbeats."""
        if self._silence:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(2 * HEARTBEAT_SECONDS, self._finish, "silent")

    def _finish(self, how: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(how)

    async def close(self, timeout_seconds: float) -> None:
        """Withdraw the request and wait for what the server had already sent.

        A plain unsubscribe would drop those, and they would come back only after ack_wait.
        """
        self._closed = True
        if self._subscription is None:
            return
        # It is not cancelled when it takes too long: a PONG that comes for a cancelled flush kills nats-py's
        # read loop (measured), and the settlements of the stop are still to be confirmed.
        draining = asyncio.ensure_future(self._subscription.drain())  # type: ignore[no-untyped-call]
        draining.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({draining}, timeout=timeout_seconds)
