"""What a predecessor had out when it died: it comes back only after ack_wait, newer messages at once."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence

from telegram_connector.bridge.consumer import BoundConsumer, nanoseconds
from telegram_connector.bridge.link import Link
from telegram_connector.delivery import DeliveryId, Missed, Taken
from telegram_connector.errors import NO_MESSAGE_FOUND, ApiError, BridgeError
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
        theirs = [sequence for sequence in range(first, last + 1) if sequence not in ours]
        return Taken(await _stored(link, settings, theirs), last, out, bound.ack_wait_seconds)
    except BridgeError:
        return Taken((), bound.delivered, 1, bound.ack_wait_seconds, everything=True)


async def look_up(
    link: Link, settings: NatsSettings, bound: BoundConsumer, sequences: Sequence[int]
) -> Missed:
    """What the stream holds of these, which went to a dead connection of ours."""
    if len(sequences) > LOOK_UP_AT_MOST:
        return Missed((), bound.ack_wait_seconds, everything=True)
    try:
        return Missed(await _stored(link, settings, sequences), bound.ack_wait_seconds)
    except BridgeError:
        return Missed((), bound.ack_wait_seconds, everything=True)


async def _stored(
    link: Link, settings: NatsSettings, sequences: Iterable[int]
) -> tuple[tuple[DeliveryId, bytes], ...]:
    """Id and payload of those that are still in the stream."""
    found = []
    for sequence in sequences:
        try:
            answer = await link.api(f"STREAM.MSG.GET.{settings.stream}", {"seq": sequence})
        except ApiError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                continue
            raise
        message = answer["message"]
        id_ = DeliveryId(settings.stream, sequence, nanoseconds(str(message["time"])))
        found.append((id_, base64.b64decode(message.get("data", ""))))
    return tuple(found)
