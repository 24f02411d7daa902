"""The stream of dead letters, as the bridge writes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from telegram_connector.bridge.link import Link
from telegram_connector.deadletter import fitting
from telegram_connector.delivery import DeadLetter
from telegram_connector.errors import STREAM_NOT_FOUND, ApiError, BridgeError
from telegram_connector.events import DeadLetterDelayed, DeadStreamMissing, Observer
from telegram_connector.settings import NatsSettings

AGAIN_FIRST_SECONDS = 0.5
AGAIN_CAP_SECONDS = 30.0


class Graveyard:
    """Stores dead letters where there is a stream for them; it is never created here: `provision` does that.

    Args:
        link: Waits for a live link and returns it.
    """

    def __init__(
        self, settings: NatsSettings, observe: Observer, link: Callable[[], Awaitable[Link]]
    ) -> None:
        self._stream = settings.dead_stream
        self._subject = settings.dead_subject
        self._observe = observe
        self._link = link
        self._said = ""
        self.exists = True

    async def look(self, link: Link) -> None:
        """Find out whether the stream exists; what cannot be found out changes nothing."""
        try:
            await link.api(f"STREAM.INFO.{self._stream}")
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                return
            if self.exists:
                self._observe(DeadStreamMissing(self._stream))
            self.exists = False
        except BridgeError:
            return
        else:
            self.exists = True

    async def bury(self, sequence: int, letter: DeadLetter) -> None:
        """Store until confirmed; gives up only when there is no such stream (any more)."""
        wait = AGAIN_FIRST_SECONDS
        while self.exists:
            link = await self._link()
            try:
                await self._store(link, letter)
            except BridgeError as error:
                await self.look(link)
                if self.exists and str(error) != self._said:
                    self._said = str(error)
                    self._observe(DeadLetterDelayed(sequence, str(error)))
                await asyncio.sleep(wait if self.exists else 0)
                wait = min(wait * 2, AGAIN_CAP_SECONDS)
            else:
                self._said = ""
                return

    async def _store(self, link: Link, letter: DeadLetter) -> None:
        headers = {**letter.headers, "Nats-Expected-Stream": self._stream}
        letter = fitting(DeadLetter(letter.payload, headers), link.max_payload)
        answer = await link.request(self._subject, letter.payload, headers=letter.headers)
        error = json.loads(answer.data).get("error")
        if error:
            raise ApiError(
                int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
            )
