"""Answers requests for the connector's status, over whatever link there is.

A plain request on ``<status subject>.<durable>`` and no NATS micro service: that would want nine
subscriptions under ``$SRV`` besides, and answers by queue group, one connector for all, where all are asked.
This takes one subscription and the right to answer whoever asked.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable

from nats.aio.msg import Msg

from telegram_connector.bridge.link import Link, PermissionDenied
from telegram_connector.errors import BridgeError
from telegram_connector.events import Observer, StatusUnanswered

LOOK_SECONDS = 0.5  # how soon a new link is listened on


class Answering:
    """Listens on each link in turn. A missing right is said, and changes nothing else.

    Args:
        subject: Where requests come in.
        link: The link there is now, if any; bound to a consumer or not.
    """

    def __init__(self, subject: str, link: Callable[[], Link | None], observe: Observer) -> None:
        self._subject = subject
        self._link = link
        self._observe = observe
        self._on: Link | None = None
        self._since = 0.0
        self._said = ""
        self.answer: Callable[[bytes], bytes] | None = None
        self.listening: Callable[[], object] = lambda: None

    @property
    def connected_seconds(self) -> float:
        """For about how long the connection stands."""
        on = self._on
        return time.monotonic() - self._since if on is not None and on.alive else 0.0

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            link = self._link()
            if link is not None and link.alive and link is not self._on:
                await self._listen(link)
            await asyncio.sleep(LOOK_SECONDS)

    async def _listen(self, link: Link) -> None:
        link.on_denied(self._subject, self._denied)
        try:
            await link.subscribe(self._subject, functools.partial(self._on_request, link))
        except BridgeError:
            return  # the link is lost; the next one is listened on
        self._on = link
        self._since = time.monotonic()
        await asyncio.get_running_loop().run_in_executor(None, self.listening)

    async def _on_request(self, link: Link, msg: Msg) -> None:
        """Answer; nats-py calls this for one request after the other."""
        if self.answer is None:
            return
        try:
            # It takes the worker's lock, and may wait for the reader: not on this thread.
            answer = await asyncio.get_running_loop().run_in_executor(None, self.answer, bytes(msg.data))
            # Nowhere else: whoever may ask us must not have us publish where they may not.
            if msg.reply.startswith("_INBOX."):
                link.on_denied(msg.reply, self._denied)
                await link.publish(msg.reply, answer)
                asyncio.get_running_loop().call_later(LOOK_SECONDS, link.off_denied, msg.reply)
        except BridgeError:
            return  # who asked finds nobody, and asks again
        except Exception as error:  # noqa: BLE001 - a bug over an answer must not stop the relay
            self._say(f"internal error: {type(error).__name__}")

    def _denied(self, words: str) -> None:
        # The subject of an answer changes with each request, and is to be said once.
        subject = PermissionDenied(words).subject
        if subject != self._subject:
            subject = "answers to requests (allow_responses)"
        self._say(f"NATS permission missing for {subject}")

    def _say(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self._observe(StatusUnanswered(reason))
