"""A key-value bucket by raw requests, over whatever link there is now."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from telegram_connector.bridge.link import Link
from telegram_connector.errors import ApiError, Disconnected

NO_MESSAGE_FOUND = 10037
STREAM_NOT_FOUND = 10059


class Bucket:
    """One JetStream KV bucket. It is never created here: `provision` does that."""

    def __init__(self, name: str, link: Callable[[], Link | None]) -> None:
        self.name = name
        self._link = link

    async def exists(self) -> bool:
        """Whether the bucket is there and may be read.

        Raises:
            Disconnected: There is no link.
            BridgeError: No answer, or none that tells.
        """
        try:
            await self._now().api(f"STREAM.INFO.KV_{self.name}")
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                return False
            raise
        return True

    async def get(self, key: str) -> bytes | None:
        """The value; None where there is none.

        Raises:
            BridgeError: It cannot be read now.
        """
        try:
            answer = await self._now().api(
                f"STREAM.MSG.GET.KV_{self.name}", {"last_by_subj": f"$KV.{self.name}.{key}"}
            )
        except ApiError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return base64.b64decode(answer["message"].get("data", ""))

    async def put(self, key: str, value: bytes) -> None:
        """Write, whatever was there.

        Raises:
            BridgeError: It was not written, or nobody said that it was.
        """
        answer = await self._now().request(f"$KV.{self.name}.{key}", value)
        error = json.loads(answer.data).get("error")
        if error:
            raise ApiError(
                int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
            )

    def _now(self) -> Link:
        link = self._link()
        if link is None:
            raise Disconnected("not connected")
        return link
