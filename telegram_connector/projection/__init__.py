"""The publisher's gate: whether a local message may leave, and as what text."""

from __future__ import annotations

from telegram_connector.projection.message import (
    Earlier,
    LocalMessage,
    ManualPublish,
    Member,
    ReplyToTurn,
    Route,
    Topic,
)
from telegram_connector.projection.policy import Noise, Policy, Splitting, read_policy
from telegram_connector.projection.project import (
    Context,
    Decision,
    Projected,
    Withheld,
    msg_id,
    project,
    text_hash,
)
from telegram_connector.projection.reasons import Reason
from telegram_connector.projection.sanitise import sanitise
from telegram_connector.projection.split import GroupState, group_state, split

__all__ = [
    "Context",
    "Decision",
    "Earlier",
    "GroupState",
    "LocalMessage",
    "ManualPublish",
    "Member",
    "Noise",
    "Policy",
    "Projected",
    "Reason",
    "ReplyToTurn",
    "Route",
    "Splitting",
    "Topic",
    "Withheld",
    "group_state",
    "msg_id",
    "project",
    "read_policy",
    "sanitise",
    "split",
    "text_hash",
]
