"""Binding the durable: found, created or updated by the raw API.

nats-py's `add_consumer` has no "create only", silently updates and erases what it does not know (measured).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from telegram_connector import topology
from telegram_connector.bridge.floor import Floor
from telegram_connector.bridge.link import Link, PermissionDenied
from telegram_connector.errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, ApiError, BridgeError
from telegram_connector.events import Bound, ConsumerDiffers, ConsumerUpdated, Observer
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import NS

# Up to nats-server 2.11 a consumer's `created` changes once, by 0.1 to 0.5 ms (measured), when the server
# that made it is started again: it was the time in memory before, and is that of the file from then on.
SAME_SECONDS = 0.1


class BindError(BridgeError):
    """Raised when the durable cannot be bound for now.

    Attributes:
        cause, setting, operator_fault: As of `ConnectError`.
    """

    def __init__(self, cause: str, setting: str, operator_fault: bool) -> None:
        self.cause = cause
        self.setting = setting
        self.operator_fault = operator_fault
        super().__init__(f"{cause} ({setting})")


@dataclass(frozen=True)
class BoundConsumer:
    """The durable as the server returned it, which is what decides.

    Attributes:
        stream_created: When the stream was made (RFC 3339): tells incarnations apart.
        created: When the consumer was made: a new one voids all handles.
        ack_wait_seconds: The server's figure.
        max_deliver: The server's figure, None for unlimited.
        max_age_seconds: Of the stream, None for unlimited.
        first_sequence: The oldest message that the stream holds.
        group: The priority group to pull with; "" where there is none.
        outstanding: How many messages were out with anybody.
        delivered: The last sequence that was handed over, to anybody.
        new: Whether the consumer was made just now.
        from_start: Whether that was from the start of the stream.
    """

    stream_created: str
    created: str
    ack_wait_seconds: float
    max_deliver: int | None
    max_age_seconds: float | None
    first_sequence: int
    delivered: int
    outstanding: int
    group: str
    new: bool
    from_start: bool
    info: dict[str, Any]

    def made_at(self, created: str) -> bool:
        """Whether a consumer with that time of creation is this very one."""
        return abs(nanoseconds(created) - nanoseconds(self.created)) < SAME_SECONDS * NS


def nanoseconds(rfc3339: str) -> int:
    """A time of nats-server's, which is UTC with up to nine decimals, since 1970."""
    whole, _, decimals = rfc3339.removesuffix("Z").partition(".")
    at = datetime.fromisoformat(whole).replace(tzinfo=timezone.utc)
    return int(at.timestamp()) * NS + int(decimals.ljust(9, "0"))


async def bind(
    link: Link, settings: NatsSettings, load_floor: Callable[[], Awaitable[Floor | None]], observe: Observer
) -> BoundConsumer:
    """Find, create or update the durable.

    It is created only on "consumer not found": from the floor + 1 where that is of this very stream, else
    from the start.

    Args:
        load_floor: Called only where the durable is created; see `FloorKeeper.load`.

    Raises:
        BindError: A reason the operator should hear.
        BridgeError: The link failed, or the floor cannot be read while it is needed; try again.
    """
    stream = await _stream_info(link, settings)
    expected = topology.consumer(settings, link.pins)
    where = f"{settings.stream}.{settings.durable}"
    created = False
    start: int | None = None
    try:
        info = await link.api(f"CONSUMER.INFO.{where}")
    except PermissionDenied as denied:
        raise _denied(denied) from None
    except ApiError as error:
        if error.err_code != CONSUMER_NOT_FOUND:
            raise
        floor = await load_floor()
        if floor is not None and floor.stream_created == stream["created"]:
            start = floor.sequence + 1
            expected = {**expected, "deliver_policy": "by_start_sequence", "opt_start_seq": start}
        info = await _create(link, settings, expected)
        created = True
    else:
        info = await _update(link, settings, expected, info, observe)
    config = info["config"]
    if unfit := topology.consumer_unfit(config):
        raise BindError(
            f"consumer {settings.durable} {unfit}; delete it, or name another", "TG_DURABLE_NAME", True
        )
    max_deliver = config.get("max_deliver", -1)
    observe(
        Bound(
            settings.stream,
            settings.durable,
            created,
            int(info.get("num_pending", 0)),
            int(info.get("num_ack_pending", 0)),
            start,
        )
    )
    return BoundConsumer(
        str(stream["created"]),
        str(info["created"]),
        config.get("ack_wait", 30 * topology.NS) / topology.NS,
        max_deliver if max_deliver > 0 else None,
        (stream["config"].get("max_age") or 0) / topology.NS or None,
        int(stream["state"]["first_seq"]),
        int(info.get("delivered", {}).get("stream_seq", 0)),
        int(info.get("num_ack_pending", 0)),
        (config.get("priority_groups") or [""])[0],
        created,
        created and start is None,
        info,
    )


async def _stream_info(link: Link, settings: NatsSettings) -> dict[str, Any]:
    try:
        return await link.api(f"STREAM.INFO.{settings.stream}")
    except PermissionDenied as denied:
        raise _denied(denied) from None
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise BindError(
                f"stream {settings.stream} does not exist; make it with: telegram-connector provision",
                "TG_STREAM",
                True,
            ) from None
        if error.code == 503 and error.err_code == 0:
            raise BindError(
                "JetStream does not answer: is it enabled for this account?", "NATS_URL", True
            ) from None
        raise


async def _create(link: Link, settings: NatsSettings, config: topology.Config) -> dict[str, Any]:
    try:
        return await _consumer_create(link, settings, config, "create")
    except PermissionDenied as denied:
        raise _denied(denied) from None
    except ApiError as error:
        if error.code == 503:
            raise
        # 10148: made by somebody else in this moment, with other settings; the next try finds it.
        raise BindError(
            f"consumer {settings.durable} cannot be created: {error}", "TG_DURABLE_NAME", True
        ) from None


async def _update(
    link: Link,
    settings: NatsSettings,
    expected: topology.Config,
    info: dict[str, Any],
    observe: Observer,
) -> dict[str, Any]:
    found = info["config"]
    differences = topology.consumer_differences(expected, found)
    if not differences:
        return info
    try:
        info = await _consumer_create(link, settings, topology.consumer_update(expected, found), "update")
    except (PermissionDenied, ApiError) as error:
        if isinstance(error, ApiError) and error.code == 503:
            raise
        max_deliver = found.get("max_deliver", -1)
        observe(ConsumerDiffers(differences, max_deliver if max_deliver > 0 else None))
        return info
    observe(ConsumerUpdated(differences))
    return info


async def _consumer_create(
    link: Link, settings: NatsSettings, config: topology.Config, action: str
) -> dict[str, Any]:
    subject = f"CONSUMER.CREATE.{settings.stream}.{settings.durable}"
    if config.get("filter_subject"):
        subject += f".{config['filter_subject']}"
    body = {"stream_name": settings.stream, "config": config, "action": action}
    return await link.api(subject, body)


def _denied(denied: PermissionDenied) -> BindError:
    return BindError(f"NATS permission missing for {denied.subject}", "the worker's NATS permissions", True)
