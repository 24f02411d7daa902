"""What the projection would make of a local message, by the gate's own code. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from telegram_connector import markup
from telegram_connector.projection import (
    Context,
    LocalMessage,
    ManualPublish,
    Member,
    Policy,
    Projected,
    ReplyToTurn,
    Route,
    Topic,
    project,
)

_ROUTE, _MESSAGE, _TURN = "preview", "preview", "turn"


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A local message, the member who wrote it, and the route that it would take.

    Attributes:
        team: What the team is called in the prefix.
        member: Who wrote it, by name.
        label: How that member signs; "" for the name.
        known: Whether the member belongs to the route's team.
        active: Whether the member is still there.
        to: Whom it is addressed to; "" for nobody.
        source: Where the local program has it from.
        kind: What it is.
        linked: What links it to the route.
        route: The route's state.
        topic: The topic's state; "" for a chat without topics.
        text: What it says.
    """

    team: str
    member: str
    text: str
    label: str = ""
    known: bool = True
    active: bool = True
    to: str = "user"
    source: str = "send_message"
    kind: str = "message"
    linked: Literal["reply", "order", "nothing"] = "reply"
    route: str = "active"
    topic: str = ""


def look(draft: Draft, policy: Policy) -> dict[str, Any]:
    """Whether it would leave, and as what.

    Raises:
        ProjectionError: Something in it is not well made; names the fields.
    """
    message = LocalMessage(
        id=_MESSAGE,
        sender=draft.member,
        to=draft.to or None,
        source=draft.source,
        kind=draft.kind,
        text=draft.text,
        in_reply_to=_TURN,
    )
    member = Member(name=draft.member, label=draft.label or None, active=draft.active)
    route = Route(
        id=_ROUTE,
        chat="1",
        topic=Topic(message_thread_id=1, state=draft.topic) if draft.topic else None,
        team=draft.team,
        state=draft.route,
        members=(member,) if draft.known else (),
    )
    made = project(message, route, _context(draft), policy)
    decision = made.decision
    return {
        "leaves": isinstance(made, Projected),
        "reason": decision.reason.value,
        "words": decision.reason.words,
        "figures": decision.figures,
        "messages": [_shown(one.text) for one in made.envelopes] if isinstance(made, Projected) else [],
    }


def offers(policy: Policy) -> dict[str, Any]:
    """The sources and kinds that the policy knows, those first that may leave."""
    return {
        "sources": [*sorted(policy.sources), *policy.why_not_sources],
        "kinds": [*sorted(policy.kinds), *policy.why_not_kinds],
        "limit": policy.limit,
    }


def _context(draft: Draft) -> Context | None:
    if draft.linked == "reply":
        return ReplyToTurn(route_id=_ROUTE, inbound_key="turn", inbound_message_id=_TURN)
    if draft.linked == "order":
        return ManualPublish(route_id=_ROUTE, message_id=_MESSAGE, requested_by="user")
    return None


def _shown(text: str) -> dict[str, Any]:
    verdict = markup.judge(text, None).as_json()
    return {"text": verdict["text"], "entities": verdict["entities"], "fault": verdict["fault"]}
