"""The pull request: connected and wanting means exactly one live pull.

nats-py's `fetch` hides deletion, leader changes and restarts behind its timeout, and with a batch above one
can stall with the message in hand (measured). Here each request has a reply subject of its own, and its
status messages are read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from telegram_connector.bridge.link import Link
from telegram_connector.bridge.pin import Pin
from telegram_connector.errors import BridgeError
from telegram_connector.topology import NS

EXPIRES_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
UNSERVED_PAUSE_SECONDS = 0.25  # a leader election takes some seconds
REFUSED_PAUSE_SECONDS = 5.0
PASSING = (
    "leadership change",
    "server shutdown",
    "maxwaiting",
    "exceeds maxbytes",
)  # what a 409 may say that ends by itself


class ConsumerGoneError(BridgeError):
    """Raised when the server says that the consumer was deleted."""


class Pull:
    """Asks for as many deliveries as are wanted, one request at a time, over one link.

    Args:
        suspect: Called when nobody served the request: the consumer may be gone.
        refused: Called with the server's words when it will not serve us, which only an operator can mend.
        deliver: Called with each message and when its request was sent (seconds of the leases' clock).
    """

    def __init__(
        self,
        link: Link,
        pin: Pin,
        stream: str,
        durable: str,
        wanted: Callable[[], int],
        deliver: Callable[[Msg, float], None],
        suspect: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._link = link
        self._pin = pin
        self._asked_at = 0.0
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
        self._renewal: asyncio.TimerHandle | None = None
        self._renewable = False
        self._heartbeat = HEARTBEAT_SECONDS
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
        if self._pin.holds and not self._pin.sure:
            # Answered at once, where a pull that finds nothing would say so with its first heartbeat only.
            await self._one(1, max_bytes=1, no_wait=True)
        while True:
            # `live` goes down before the figure is read: whoever raises it and still sees `live` up can
            # rely on its being read.
            self.live = False
            self._poke.clear()
            wanted = self._wanted()
            if wanted <= 0 or self._closed:
                try:
                    await asyncio.wait_for(self._poke.wait(), self._pin.renew_seconds)
                except asyncio.TimeoutError:
                    await self._one(1, max_bytes=1)  # takes nothing, and renews the pin
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

    async def _one(self, batch: int, max_bytes: int = 0, no_wait: bool = False) -> str:
        self._number += 1
        self._missing = batch
        self._over = asyncio.get_running_loop().create_future()
        fields, self._asked_at = self._pin.ask()
        # While pinned, the next request must follow well within the pin's time; its heartbeats confirm it.
        expires = min(EXPIRES_SECONDS, self._pin.request_seconds)
        self._heartbeat = min(HEARTBEAT_SECONDS, expires / 2.5)
        self._listen()
        request: dict[str, Any] = {"batch": batch, **fields}
        if no_wait:
            request["no_wait"] = True
        else:
            request |= {"expires": int(expires * NS), "idle_heartbeat": int(self._heartbeat * NS)}
        if max_bytes:
            request["max_bytes"] = max_bytes
        try:
            await self._link.publish(
                self._subject, json.dumps(request).encode(), reply=f"{self._inbox}.{self._number}"
            )
            if "id" not in fields:
                self._renewable = True
            return await self._over
        finally:
            self._renewable = False
            for timer in (self._silence, self._renewal):
                if timer:
                    timer.cancel()
            self._renewal = None

    async def _on_message(self, msg: Msg) -> None:
        self._listen()
        if not msg.subject.startswith(f"{self._inbox}."):
            # A delivery keeps the subject it was published to. Its headers are the publisher's, so a
            # ``Status`` among them means nothing.
            self._missing -= 1
            try:
                self._deliver(msg, self._asked_at)
            finally:
                self._renew_soon()
                if self._missing <= 0:
                    self._finish("full")
            return
        headers = msg.headers or {}
        status = headers.get("Status")
        if msg.subject == f"{self._inbox}.{self._number}" and status in ("100", "404", "408", "409"):
            self._pin.confirm(self._asked_at)
        if status != "100" and msg.subject == f"{self._inbox}.{self._number}":
            description = headers.get("Description", "")
            if "consumer deleted" in description.lower():
                self._finish("gone")
            elif status in ("404", "408"):
                self._finish("expired")
            elif status == "423":
                self._pin.drop()
                self._finish("unpinned")
            elif status in ("400", "409") and not any(words in description.lower() for words in PASSING):
                self._deny(description)
            else:  # 409: leadership change, max waiting; 503: nobody there now
                self._finish("unserved")

    def _renew_soon(self) -> None:
        """A request from before we were pinned carries no id, so that it must give way to one that does."""
        renew = self._pin.renew_seconds
        if self._renewable and renew is not None:
            self._renewable = False
            self._renewal = asyncio.get_running_loop().call_later(renew, self._finish, "renewal")

    def _deny(self, words: str) -> None:
        self._refusal = words
        self._finish("refused")

    def _listen(self) -> None:
        """A sign of life: the next is due within two heartbeats."""
        if self._silence:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(2 * self._heartbeat, self._finish, "silent")

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
