"""The faulty answers of a soak: what the sandbox does to a share of the sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One kind of faulty answer.

    Attributes:
        rule: What the sandbox is told, without a name and a chance.
        weight: How often, beside the others. Those that stop the sender for seconds come more seldom.
        lost: Whether Telegram has the message and says so to nobody: the connector cannot but send it again.
        seconds: How long after it was accepted the answer, or the sign that there is none, takes at most.
    """

    rule: Mapping[str, Any]
    weight: float = 1.0
    lost: bool = False
    seconds: float = 0.0


# The connector gives up an answer when the lease (TG_ACK_WAIT_SECS) ends.
LEASE_SECONDS = 5.0

KINDS: Mapping[str, Kind] = {
    "429": Kind({"preset": "flood", "retry_after": 1}),
    "429-again": Kind({"preset": "flood", "retry_after": 2}, weight=0.5),
    "500": Kind({"preset": "restart-500"}),
    "500-html": Kind({"preset": "srv_500_html"}),
    "502-html": Kind({"preset": "html-502"}),
    "503-html": Kind({"preset": "srv_503_html"}),
    "504": Kind({"preset": "amb_504_html"}),
    "400-bad-gateway": Kind({"preset": "srv_400_bad_gateway"}, weight=0.5),
    "401-for-a-moment": Kind({"preset": "bot_401"}, weight=0.3),
    "reset-before-body": Kind({"reset": "before_body"}),
    "reset-before-answer": Kind({"reset": "before_answer"}),
    "200-html": Kind({"preset": "amb_200_html"}),
    "slow-answer": Kind({"delay_seconds": 0.7}, seconds=0.7),
    "slow-drip": Kind({"drip": {"bytes": 40, "interval_seconds": 0.03}}, seconds=1.0),
    "silence-unaccepted": Kind({"silence": {"seconds": 60, "when": "before_answer"}}, weight=0.2),
    "reset-accepted": Kind({"reset": "after_accept"}, lost=True),
    "half-body-accepted": Kind({"preset": "half-body"}, lost=True),
    "200-html-accepted": Kind({"preset": "amb_200_html", "accept": True}, lost=True),
    "500-accepted": Kind({"preset": "restart-500", "accept": True}, lost=True),
    "504-accepted": Kind({"preset": "amb_504_html", "accept": True}, lost=True),
    "silence-accepted": Kind(
        {"silence": {"seconds": 60, "when": "after_accept"}}, weight=0.2, lost=True, seconds=LEASE_SECONDS
    ),
}


def rules(share: float, seed: int) -> list[dict[str, Any]]:
    """The sandbox's rules, by which `share` of the sends (0 to 1) meets one of the kinds, by weight."""
    left = 1.0
    made = []
    whole = sum(kind.weight for kind in KINDS.values())
    # The sandbox reads no body before the rules about unread ones were asked.
    order = sorted(KINDS, key=lambda name: name != "reset-before-body")
    for number, name in enumerate(order):
        wanted = share * KINDS[name].weight / whole
        made.append(
            {
                **KINDS[name].rule,
                "name": name,
                "method": "sendMessage",
                "probability": min(1.0, wanted / left) if left > 0 else 0.0,
                "seed": seed * 100 + number,
            }
        )
        left -= wanted
    return made
