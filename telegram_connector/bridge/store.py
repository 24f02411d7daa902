"""A key-value bucket by raw requests, over whatever link there is now."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from telegram_connector.bridge.link import REQUEST_SECONDS, Link, PermissionDenied
from telegram_connector.delivery import Versioned
from telegram_connector.errors import (
    NO_MESSAGE_FOUND,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    ApiError,
    BridgeError,
    Disconnected,
    RevisionMismatch,
)

EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"

SOON_SECONDS = 2.0  # what a relay that does without the bucket waits for it


class Bucket:
    """One JetStream KV bucket. It is never created here: `provision` does that.

    Where it is missing or may not be used it is as good as empty, and writing to it does nothing: a relay
    without it works, from memory alone. One that does not answer may hold something, and is no such bucket.
    """

    def __init__(self, name: str, link: Callable[[], Link | None]) -> None:
        self.name = name
        self._link = link
        self.usable = True

    async def open(self) -> str:
        """Look whether the bucket can be used; returns why not, "" when it can."""
        usable, reason = True, ""
        try:
            await self._now().api(f"STREAM.INFO.KV_{self.name}", timeout_seconds=SOON_SECONDS)
            await self._read("readable")
        except PermissionDenied as denied:
            usable, reason = False, f"bucket {self.name}: {denied}"
        except ApiError as error:
            reason = f"bucket {self.name}: {error}"
            if error.err_code == STREAM_NOT_FOUND:
                usable = False
                reason = f"bucket {self.name} does not exist; make it with: telegram-connector provision"
        except BridgeError as error:
            reason = f"bucket {self.name}: {error}"
        self.usable = usable
        return reason

    async def get(self, key: str) -> bytes | None:
        """The value; None where there is none.

        Raises:
            BridgeError: It cannot be read now.
        """
        return await self._read(key) or None if self.usable else None

    async def _read(self, key: str) -> bytes | None:
        found = await self.read(key, SOON_SECONDS)
        return found.value if found else None

    async def put(self, key: str, value: bytes) -> None:
        """Write, whatever was there.

        Raises:
            BridgeError: It was not written, or nobody said that it was.
        """
        if self.usable:
            await self.write(key, value, None)

    # For whom a bucket that is missing is not as good as an empty one.

    async def read(self, key: str, timeout_seconds: float = REQUEST_SECONDS) -> Versioned | None:
        """The value and its revision; None where there is none.

        Raises:
            BridgeError: It cannot be read now; a bucket that does not exist too.
        """
        subject = f"$KV.{self.name}.{key}"
        try:
            answer = await self._now().api(
                f"STREAM.MSG.GET.KV_{self.name}", {"last_by_subj": subject}, timeout_seconds=timeout_seconds
            )
        except ApiError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        # A key that was deleted has a last message all the same, an empty one.
        message = answer["message"]
        return Versioned(base64.b64decode(message.get("data", "")), int(message["seq"]))

    async def write(self, key: str, value: bytes, revision: int | None) -> int:
        """Replace `revision`, 0 for nothing yet, None for whatever there is; returns the new one.

        Raises:
            RevisionMismatch: The key has another revision.
            Unanswered: It may have been written.
            BridgeError: It was not written.
        """
        headers = None if revision is None else {EXPECTED_REVISION: str(revision)}
        answer = await self._now().request(f"$KV.{self.name}.{key}", value, headers=headers)
        document = json.loads(answer.data)
        if error := document.get("error"):
            code, err_code = int(error.get("code", 0)), int(error.get("err_code", 0))
            kind = RevisionMismatch if err_code == WRONG_LAST_SEQUENCE else ApiError
            raise kind(code, err_code, str(error.get("description", "")))
        return int(document["seq"])

    def _now(self) -> Link:
        link = self._link()
        if link is None:
            raise Disconnected("not connected")
        return link
