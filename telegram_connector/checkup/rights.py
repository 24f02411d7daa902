"""What the worker must be allowed on NATS, and what of it a user lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from telegram_connector.settings import NatsSettings
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET, STATE_BUCKET


@dataclass(frozen=True)
class Right:
    """One permission, as in deploy/nats-permissions.conf.

    Attributes:
        verb: What is done.
        subject: With what, wildcards included.
        vital: Whether the worker cannot do its work without.
        answer: Whether ``allow_responses`` will do instead.
    """

    verb: Literal["publish", "subscribe"]
    subject: str
    vital: bool = True
    answer: bool = False

    def __str__(self) -> str:
        return "allow_responses" if self.answer else f"{self.verb} {self.subject}"


def needed(settings: NatsSettings, keeps_dead_letters: bool = True) -> tuple[Right, ...]:
    """What the worker needs under the names that are configured.

    Args:
        settings: Has the names.
        keeps_dead_letters: Whether there is a stream for them. Then what is refused waits until it is stored.
    """
    stream, durable = settings.stream, settings.durable
    return (
        Right("subscribe", f"_INBOX.{durable}.>"),
        Right("publish", f"$JS.API.STREAM.INFO.{stream}"),
        Right("publish", f"$JS.API.STREAM.MSG.GET.{stream}"),
        Right("publish", f"$JS.API.CONSUMER.INFO.{stream}.{durable}"),
        # An administrator may make and change the consumer instead.
        Right("publish", f"$JS.API.CONSUMER.CREATE.{stream}.{durable}.{settings.subject}", vital=False),
        Right("publish", f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
        # Without it a standby takes over after a silence instead of at once.
        Right("publish", f"$JS.API.CONSUMER.UNPIN.{stream}.{durable}", vital=False),
        Right("publish", f"$JS.ACK.{stream}.{durable}.>"),
        # Without its bucket the worker works from memory.
        Right("publish", f"$JS.API.STREAM.INFO.KV_{STATE_BUCKET}", vital=False),
        Right("publish", f"$JS.API.STREAM.MSG.GET.KV_{STATE_BUCKET}"),
        Right("publish", f"$KV.{STATE_BUCKET}.>"),
        Right("publish", f"$JS.API.STREAM.INFO.{settings.dead_stream}", vital=False),
        # Without it messages in doubt are not counted for the metrics.
        Right("publish", f"$JS.API.STREAM.MSG.GET.{settings.dead_stream}", vital=False),
        Right("publish", settings.dead_subject, vital=keeps_dead_letters),
        Right("publish", settings.alert_subject, vital=False),
        # Without these the command status does not hear of this worker, and pauses are heeded within 10 s.
        Right("subscribe", f"{settings.status_subject}.{durable}", vital=False),
        Right("publish", f"{settings.status_subject}.{durable}", vital=False),
        Right("publish", f"_INBOX.{durable}.>", vital=False, answer=True),
        # Without it nobody hears its heartbeats.
        Right("publish", f"{settings.heartbeat_subject}.{durable}", vital=False),
    )


def needed_by_ledger(parks: bool) -> tuple[Right, ...]:
    """What the worker needs besides with ``TG_LEDGER=kv``.

    Args:
        parks: ``TG_ON_AMBIGUOUS=park``: nothing is sent that cannot be recorded.
    """
    return tuple(
        right
        for bucket in (LEDGER_BUCKET, LINKS_BUCKET)
        for right in (
            # Only this command asks it.
            Right("publish", f"$JS.API.STREAM.INFO.KV_{bucket}", vital=False),
            Right("publish", f"$JS.API.STREAM.MSG.GET.KV_{bucket}", vital=parks),
            # A link is owed until it is stored; what a missing one holds up is replies.
            Right("publish", f"$KV.{bucket}.>", vital=parks and bucket == LEDGER_BUCKET),
        )
    )


class Permissions:
    """What a user may do, as ``$SYS.REQ.USER.INFO`` tells it."""

    def __init__(self, told: object) -> None:
        """Read the ``permissions`` of an answer; a user without any may do everything."""
        self._told: Mapping[str, Any] = told if isinstance(told, Mapping) else {}

    def allow(self, right: Right) -> bool:
        """Whether all of a right is covered by one permission and none of it denied."""
        if right.answer and self._told.get("responses"):
            return True
        allowed, denied = self._lists(right.verb)
        if any(overlap(pattern, right.subject) for pattern in denied):
            return False
        return not allowed or any(covers(pattern, right.subject) for pattern in allowed)

    def _lists(self, verb: str) -> tuple[list[str], list[str]]:
        of_verb = self._told.get(verb)
        of_verb = of_verb if isinstance(of_verb, Mapping) else {}
        # A subscribe permission may name a queue after the subject.
        allowed, denied = (
            [str(pattern).split(" ")[0] for pattern in of_verb.get(key) or ()] for key in ("allow", "deny")
        )
        return allowed, denied


def covers(pattern: str, subject: str) -> bool:
    """Whether everything that `subject` stands for, wildcards included, matches `pattern`."""
    return _match(pattern.split("."), subject.split("."), one_way=True)


def overlap(one: str, other: str) -> bool:
    """Whether some subject matches both."""
    return _match(one.split("."), other.split("."), one_way=False)


def _match(pattern: Sequence[str], subject: Sequence[str], *, one_way: bool) -> bool:
    for number, word in enumerate(pattern):
        if number >= len(subject):
            return False
        if word == ">":
            return True
        given = subject[number]
        if given == ">":
            return not one_way
        if word != given and word != "*" and (one_way or given != "*"):
            return False
    return len(pattern) == len(subject)
