"""Messages as JetStream hands them out to those who look into streams: reading rights, no consumer."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from telegram_connector.bridge.client import AT_ONCE, NatsClient
from telegram_connector.errors import NO_MESSAGE_FOUND, ApiError


def each(client: NatsClient, stream: str, sequences: Sequence[int]) -> Iterator[dict[str, Any]]:
    """What a stream has under these sequences, some dozens at a time; gaps are passed over.

    By requests for single messages: they ask for the right to read and nothing else, leave no consumer
    behind, and are known to every server.

    Raises:
        ApiError: JetStream said no, e.g. that there is no such stream.
        BridgeError: No answer.
    """
    for first in range(0, len(sequences), AT_ONCE):
        bodies = [{"seq": sequence} for sequence in sequences[first : first + AT_ONCE]]
        for answer in client.api_each(f"STREAM.MSG.GET.{stream}", bodies):
            if not isinstance(answer, ApiError):
                yield answer["message"]
            elif answer.err_code != NO_MESSAGE_FOUND:
                raise answer


def data(message: Mapping[str, Any]) -> bytes:
    """A stored message's bytes."""
    return base64.b64decode(message.get("data") or "")


def headers(message: Mapping[str, Any]) -> dict[str, str]:
    """A stored message's headers; of a name that comes twice the first, as nats-py has it."""
    block = base64.b64decode(message.get("hdrs") or "").decode("utf-8", "replace")
    found: dict[str, str] = {}
    for line in block.split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name, value.strip())
    return found
