"""Publishes heartbeats, over whatever link there is."""

from __future__ import annotations

from collections.abc import Callable

from telegram_connector.bridge.link import Link
from telegram_connector.errors import BridgeError
from telegram_connector.events import HeartbeatUnheard, Observer


class Beating:
    """A missing right is said once, and changes nothing else.

    Args:
        subject: Where to.
        link: The link there is now, if any.
    """

    def __init__(self, subject: str, link: Callable[[], Link | None], observe: Observer) -> None:
        self._subject = subject
        self._link = link
        self._observe = observe
        self._watched: Link | None = None
        self._said = False

    async def beat(self, heartbeat: bytes) -> None:
        """Publish one; nothing happens without a connection."""
        link = self._link()
        if link is None:
            return
        if link is not self._watched:
            link.on_denied(self._subject, self._denied)
            self._watched = link
        try:
            await link.publish(self._subject, heartbeat)
        except BridgeError:
            return  # the link is lost, and silence is what that sounds like

    def _denied(self, _words: str) -> None:
        if not self._said:
            self._said = True
            self._observe(HeartbeatUnheard(f"NATS permission missing for {self._subject}"))
