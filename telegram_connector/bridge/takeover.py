"""What a predecessor had out when it died: it comes back only after ack_wait, newer messages at once."""

from __future__ import annotations

import base64
from collections.abc import Collection

from telegram_connector.bridge.consumer import BoundConsumer, nanoseconds
from telegram_connector.bridge.link import Link
from telegram_connector.bridge.store import NO_MESSAGE_FOUND
from telegram_connector.delivery import DeliveryId, Taken
from telegram_connector.errors import ApiError, BridgeError
from telegram_connector.settings import NatsSettings

LOOK_UP_AT_MOST = 1000


async def take_over(
    link: Link, settings: NatsSettings, bound: BoundConsumer, ours: Collection[int]
) -> Taken | None:
    """Look up what may be out with somebody else: between the ack floor and the last that was handed over.

    Args:
        ours: Sequences that this process has received; they are not awaited.

    Returns:
        None when nothing is out. What cannot be looked up is awaited for all chats.
    """
    try:
        info = await link.api(f"CONSUMER.INFO.{settings.stream}.{settings.durable}")
        out = int(info.get("num_ack_pending", 0)) - len(ours)
        if out <= 0:
            return None
        first = int(info["ack_floor"]["stream_seq"]) + 1
        last = int(info["delivered"]["stream_seq"])
        while last in ours:
            last -= 1
        if last - first >= LOOK_UP_AT_MOST:
            return Taken((), last, out, bound.ack_wait_seconds, everything=True)
        found = []
        for sequence in range(first, last + 1):
            if sequence not in ours:
                stored = await _stored(link, settings, sequence)
                if stored is not None:
                    found.append(stored)
        return Taken(tuple(found), last, out, bound.ack_wait_seconds)
    except BridgeError:
        return Taken((), bound.delivered, 1, bound.ack_wait_seconds, everything=True)


async def _stored(link: Link, settings: NatsSettings, sequence: int) -> tuple[DeliveryId, bytes] | None:
    try:
        answer = await link.api(f"STREAM.MSG.GET.{settings.stream}", {"seq": sequence})
    except ApiError as error:
        if error.err_code == NO_MESSAGE_FOUND:
            return None
        raise
    message = answer["message"]
    id_ = DeliveryId(settings.stream, sequence, nanoseconds(str(message["time"])))
    return id_, base64.b64decode(message.get("data", ""))
