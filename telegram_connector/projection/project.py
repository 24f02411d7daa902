"""Whether a local message may leave, and as what. Pure; the default is that it does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from telegram_connector.envelope import TelegramOutbound
from telegram_connector.projection.message import (
    Earlier,
    LocalMessage,
    ManualPublish,
    ReplyToTurn,
    Route,
)
from telegram_connector.projection.policy import Policy
from telegram_connector.projection.reasons import Reason
from telegram_connector.projection.sanitise import sanitise
from telegram_connector.projection.split import split

Context = ReplyToTurn | ManualPublish


@dataclass(frozen=True)
class Decision:
    """What was decided about one message on one route, for a ledger and for whoever asks why.

    Attributes:
        decision_id: The same for the same decision about the same text; ``visibility_decision_id``.
        verdict: Whether it may leave.
        reason: Why.
        message_id: The local message.
        route_id: The route.
        msg_id: Idempotency key of message and route, whatever the text; the group's where it is split.
        context: What linked it: ``"reply_to_provider_turn"``, ``"manual_publish"`` or None.
        text_hash: SHA-256 of the local text.
        parts: How many envelopes; 0 when withheld.
        figures: Counts that belong to the reason, in words; may be empty.
        status: The status that stands, where the message was handled before.
    """

    decision_id: str
    verdict: Literal["eligible", "withheld"]
    reason: Reason
    message_id: str
    route_id: str
    msg_id: str
    context: str | None
    text_hash: str
    parts: int = 0
    figures: str = ""
    status: str | None = None

    def __str__(self) -> str:
        words = f"{self.verdict}: {self.reason.words}"
        return f"{words} ({self.figures})" if self.figures else words


@dataclass(frozen=True)
class Projected:
    """It may leave.

    Attributes:
        decision: What to put on record before publishing.
        envelopes: One, or the parts in order; each stands alone.
    """

    decision: Decision
    envelopes: tuple[TelegramOutbound, ...]


@dataclass(frozen=True)
class Withheld:
    """It stays.

    Attributes:
        decision: What to put on record, unless `status` says that something is there.
    """

    decision: Decision

    @property
    def decision_id(self) -> str:
        return self.decision.decision_id

    @property
    def reason(self) -> Reason:
        return self.decision.reason

    @property
    def status(self) -> str | None:
        """The status on record, where the message was handled before."""
        return self.decision.status


@dataclass(frozen=True)
class _Against:
    reason: Reason
    figures: str = ""


def project(
    message: LocalMessage,
    route: Route,
    context: Context | None,
    policy: Policy,
    *,
    earlier: Earlier | None = None,
) -> Projected | Withheld:
    """Decide whether the message may leave by the route, and write its envelopes.

    Args:
        context: What links the message to the route; None for nothing, and then it stays.
        earlier: What is on record about this message on this route. A message that was withheld may still be
            ordered to be published; otherwise what is on record stands, also when the text was edited. None
            for nothing, and where publishing was begun and not confirmed: the keys come out the same.
    """
    against = _handled(message, context, earlier)
    status = earlier.status if earlier and against else None
    against = against or next(_objections(message, route, context, policy), None)
    texts = against or _texts(message, route, policy)
    if isinstance(texts, _Against):
        return Withheld(_decision(message, route, context, texts, (), status))
    decision = _decision(message, route, context, _Against(Reason.ELIGIBLE), texts)
    return Projected(decision, tuple(_envelopes(message, route, context, policy, decision, texts)))


def msg_id(route_id: str, message_id: str) -> str:
    """The idempotency key of a local message on a route; the two can be read back from it."""
    return f"{quote(route_id, safe='')}/{quote(message_id, safe='')}"


def text_hash(text: str) -> str:
    """SHA-256 of a local text, in hexadecimal; halves of surrogate pairs included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _handled(message: LocalMessage, context: Context | None, earlier: Earlier | None) -> _Against | None:
    if earlier is None or (earlier.status == "cancelled" and isinstance(context, ManualPublish)):
        return None
    same = earlier.text_hash == text_hash(message.text)
    return _Against(Reason.ALREADY_HANDLED if same else Reason.EDITED, f"status {earlier.status}")


def _objections(
    message: LocalMessage, route: Route, context: Context | None, policy: Policy
) -> Iterator[_Against]:
    """All that is against it but its text, the plainest first."""
    for reasons in (
        _people(message, route, policy),
        _nature(message, context, policy),
        _link(message, route, context),
    ):
        yield from map(_Against, reasons)


def _people(message: LocalMessage, route: Route, policy: Policy) -> Iterator[Reason]:
    author = message.sender.strip().casefold()
    if author == "user":
        yield Reason.FROM_USER
    if author == "system":
        yield Reason.FROM_SYSTEM
    if not message.to:
        yield Reason.NO_RECIPIENT
    elif message.to != "user":
        yield Reason.NOT_TO_USER
    member = route.member(message.sender)
    if member is None:
        yield Reason.SENDER_UNKNOWN
    elif not member.active:
        yield Reason.SENDER_INACTIVE
    elif policy.members is not None and message.sender not in policy.members:
        yield Reason.MEMBER_NOT_ALLOWED


def _nature(message: LocalMessage, context: Context | None, policy: Policy) -> Iterator[Reason]:
    ordered = isinstance(context, ManualPublish) and message.kind in policy.kinds_on_request
    if message.kind not in policy.kinds and not ordered:
        yield policy.why_not_kinds.get(message.kind, Reason.KIND_UNKNOWN)
    if message.source not in policy.sources:
        yield policy.why_not_sources.get(message.source, Reason.SOURCE_UNKNOWN)


def _link(message: LocalMessage, route: Route, context: Context | None) -> Iterator[Reason]:
    if context is None:
        yield Reason.NO_LINK
    elif context.route_id != route.id:
        yield Reason.OTHER_ROUTE
    elif isinstance(context, ManualPublish):
        if context.message_id != message.id:
            yield Reason.OTHER_MESSAGE
        if context.requested_by != "user":
            yield Reason.NOT_BY_USER
    elif message.in_reply_to is not None:
        if message.in_reply_to != context.inbound_message_id:
            yield Reason.OTHER_TURN
    elif message.conversation_id is None or message.conversation_id != context.conversation_id:
        yield Reason.NOT_LINKED
    if route.state != "active":
        yield Reason.ROUTE_NOT_ACTIVE
    if route.topic is not None and route.topic.state != "active":
        repair = route.topic.state == "repair_required"
        yield Reason.TOPIC_REPAIR_REQUIRED if repair else Reason.TOPIC_NOT_ACTIVE


def _texts(message: LocalMessage, route: Route, policy: Policy) -> tuple[str, ...] | _Against:
    """The texts to send, each with its prefix; the sender is known to be one of the route's members."""
    clean = sanitise(message.text, policy)
    if isinstance(clean, Reason):
        return _Against(clean)
    (signature,) = (member.signature for member in route.members if member.name == message.sender)
    prefix = policy.prefix.format(team=route.team, member=signature)
    length = len(prefix) + len(clean)
    if length <= policy.limit:
        return (prefix + clean,)
    figures = f"{length} code points, at most {policy.limit} in one message"
    splitting = policy.splitting
    if splitting is None:
        return _Against(Reason.TOO_LONG, figures)
    longest_mark = splitting.mark.format(part=splitting.max_parts, parts=splitting.max_parts)
    parts = split(clean, policy.limit - len(prefix) - len(longest_mark))
    if len(parts) > splitting.max_parts:
        return _Against(
            Reason.TOO_MANY_PARTS, f"{figures}; {len(parts)} parts, at most {splitting.max_parts}"
        )
    return tuple(
        prefix + part + splitting.mark.format(part=number, parts=len(parts))
        for number, part in enumerate(parts, 1)
    )


def _envelopes(
    message: LocalMessage,
    route: Route,
    context: Context | None,
    policy: Policy,
    decision: Decision,
    texts: tuple[str, ...],
) -> Iterator[TelegramOutbound]:
    split_up = len(texts) > 1
    inbound = context.telegram_message_id if isinstance(context, ReplyToTurn) else None
    for number, text in enumerate(texts, 1):
        reply = inbound if number == 1 else None
        yield TelegramOutbound(
            msg_id=f"{decision.msg_id}/{number}" if split_up else decision.msg_id,
            chat=route.chat,
            text=text,
            message_thread_id=route.topic.message_thread_id if route.topic else None,
            reply_to_message_id=reply,
            # The answer matters more than the line to what it answers, which the user may have deleted.
            allow_sending_without_reply=True if reply else None,
            on_ambiguous=policy.on_ambiguous,
            route_id=route.id,
            from_member=message.sender,
            group=decision.msg_id if split_up else None,
            part=number if split_up else None,
            parts=len(texts) if split_up else None,
            visibility_decision_id=decision.decision_id,
        )


def _decision(
    message: LocalMessage,
    route: Route,
    context: Context | None,
    why: _Against,
    texts: tuple[str, ...],
    status: str | None = None,
) -> Decision:
    eligible = why.reason is Reason.ELIGIBLE
    linked_by = turn = None
    if isinstance(context, ReplyToTurn):
        linked_by, turn = "reply_to_provider_turn", context.inbound_key
    elif context is not None:
        linked_by = "manual_publish"
    digest = text_hash(message.text)
    identity = [
        "visibility 1",
        *(route.id, message.id, digest, linked_by, turn),
        *(why.reason.value, why.figures, [text_hash(text) for text in texts]),
    ]
    return Decision(
        decision_id=hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        verdict="eligible" if eligible else "withheld",
        reason=why.reason,
        message_id=message.id,
        route_id=route.id,
        msg_id=msg_id(route.id, message.id),
        context=linked_by,
        text_hash=digest,
        parts=len(texts),
        figures=why.figures,
        status=status,
    )
