"""A key-value bucket for commands: blocking, with compare-and-set."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from telegram_connector.bridge.client import NatsClient
from telegram_connector.bridge.store import EXPECTED_REVISION
from telegram_connector.errors import (
    NO_MESSAGE_FOUND,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    ApiError,
    BridgeError,
)


class NoBucket(BridgeError):
    """Raised when there is no such bucket."""

    def __init__(self, name: str) -> None:
        super().__init__(f"bucket {name} does not exist; make it with: telegram-connector provision")


class Entry(NamedTuple):
    """A value, and the revision by which it can be replaced."""

    value: bytes
    revision: int


class KeyValue:
    """One JetStream KV bucket. It is never created here: `provision` does that."""

    def __init__(self, client: NatsClient, bucket: str) -> None:
        self.bucket = bucket
        self._client = client

    def keys(self, pattern: str = ">") -> list[str]:
        """The keys that match, deleted ones included; a request for every 100,000 of them.

        Raises:
            NoBucket: There is none.
            BridgeError: It cannot be read.
        """
        prefix = f"$KV.{self.bucket}."
        found: list[str] = []
        while True:
            body = {"subjects_filter": f"{prefix}{pattern}", "offset": len(found)}
            try:
                answer = self._client.api(f"STREAM.INFO.KV_{self.bucket}", body)
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND:
                    raise NoBucket(self.bucket) from None
                raise
            subjects = answer["state"].get("subjects") or {}
            found += (subject.removeprefix(prefix) for subject in subjects)
            if not subjects or len(found) >= int(answer.get("total", 0)):
                return found

    def get(self, key: str) -> Entry | None:
        """The value now; None where there is none.

        Raises:
            BridgeError: It cannot be read.
        """
        return self.get_each([key])[0]

    def get_each(self, keys: Iterable[str]) -> list[Entry | None]:
        """The values of many keys, in their order.

        Raises:
            BridgeError: One of them cannot be read.
        """
        return [None if _deleted(message) else _entry(message) for message in self._last(keys)]

    def create(self, key: str, value: bytes) -> int | None:
        """Write unless there is a value; the revision, None when there is one.

        Raises:
            BridgeError: It was not written, or nobody said that it was.
        """
        revision = self.update(key, value, 0)
        if revision is None:
            (last,) = self._last([key])
            if last is not None and _deleted(last):
                revision = self.update(key, value, int(last["seq"]))
        return revision

    def delete(self, key: str, revision: int) -> int | None:
        """Delete a value unless somebody else has written since `revision`; as `update`.

        Its marker, which has no value, stays for as long as the bucket keeps things.
        """
        return self.update(key, b"", revision, {"KV-Operation": "DEL"})

    def update(
        self, key: str, value: bytes, revision: int, headers: Mapping[str, str] | None = None
    ) -> int | None:
        """Write unless somebody else has since `revision`; the new revision, None when somebody has.

        Raises:
            BridgeError: It was not written, or nobody said that it was.
        """
        try:
            return self._client.publish(
                f"$KV.{self.bucket}.{key}", value, {EXPECTED_REVISION: str(revision), **(headers or {})}
            ).seq
        except ApiError as error:
            if error.err_code == WRONG_LAST_SEQUENCE:
                return None
            if error.code == 503 and error.err_code == 0:
                raise NoBucket(self.bucket) from None
            raise

    def _last(self, keys: Iterable[str]) -> list[dict[str, Any] | None]:
        bodies = [{"last_by_subj": f"$KV.{self.bucket}.{key}"} for key in keys]
        found: list[dict[str, Any] | None] = []
        for answer in self._client.api_each(f"STREAM.MSG.GET.KV_{self.bucket}", bodies):
            if not isinstance(answer, ApiError):
                found.append(answer["message"])
            elif answer.err_code == NO_MESSAGE_FOUND:
                found.append(None)
            else:
                raise NoBucket(self.bucket) if answer.err_code == STREAM_NOT_FOUND else answer
        return found


def _deleted(message: Mapping[str, Any] | None) -> bool:
    return message is None or not message.get("data")


def _entry(message: Mapping[str, Any] | None) -> Entry | None:
    return None if message is None else Entry(base64.b64decode(message["data"]), int(message["seq"]))
