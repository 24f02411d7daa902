"""Counts the messages in doubt now and then, over whatever link there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from telegram_connector.bridge.census import Census
from telegram_connector.bridge.link import Link, PermissionDenied
from telegram_connector.errors import BridgeError
from telegram_connector.events import DoubtsUncounted, Observer

COUNT_SECONDS = 30.0
LOOK_SECONDS = 1.0  # how soon a new link is counted over
AT_ONCE = 8  # requests; the relay's own share the connection


class Counting:
    """A missing right is said once, and asked for no more over the same link; nothing else changes.

    Args:
        dead_stream: The stream of dead letters.
        link: The link there is now, if any; bound to a consumer or not.
    """

    def __init__(self, dead_stream: str, link: Callable[[], Link | None], observe: Observer) -> None:
        self._dead_stream = dead_stream
        self._link = link
        self._observe = observe
        self._census = Census(dead_stream, AT_ONCE)
        self._on: Link | None = None
        self._count: int | None = None
        self._said = ""

    @property
    def count(self) -> int | None:
        """How many there were a moment ago; None while that is not known."""
        on, count = self._on, self._count
        return count if on is not None and on.alive else None

    async def run(self) -> None:
        """Count until cancelled."""
        clock = asyncio.get_running_loop().time
        due = 0.0
        while True:
            link = self._link()
            if link is not None and link.alive and (link is not self._on or clock() >= due):
                if link is not self._on:
                    self._on, self._count = link, None
                due = clock() + COUNT_SECONDS
                try:
                    self._count = await self._look(link)
                except PermissionDenied as denied:
                    due = float("inf")
                    self._uncounted(f"NATS permission missing for {denied.subject}")
                except BridgeError:
                    self._count = None
                except Exception as error:  # noqa: BLE001 - a bug over a figure must not stop the relay
                    self._uncounted(f"internal error: {type(error).__name__}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, link: Link) -> int:
        info = await link.api(f"STREAM.INFO.{self._dead_stream}")
        await self._census.reasons(link, info)
        return await self._census.in_doubt(link)

    def _uncounted(self, reason: str) -> None:
        self._count = None
        if reason != self._said:
            self._said = reason
            self._observe(DoubtsUncounted(reason))
