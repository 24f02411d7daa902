"""What the projection is asked about: a local message, the route it would take, and what links the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from telegram_connector.envelope import is_chat
from telegram_connector.projection.checked import Checked, Label, Word

_TelegramId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class LocalMessage(Checked, frozen=True, kw_only=True):
    """A message as the local program has it.

    Attributes:
        id: Its local id, the same whenever it is asked about.
        sender: The member who wrote it, by name.
        to: Whom it is addressed to; None for nobody.
        source: Where the local program has it from, e.g. ``"lead_process"``.
        kind: What it is, e.g. ``"message"`` or ``"slash_command_result"``.
        text: As it came; nothing stripped.
        in_reply_to: Id of the local message that it answers, where that is known.
        conversation_id: The conversation that it belongs to, where that is known.
    """

    id: Word
    sender: Word
    to: str | None
    source: str
    kind: str
    text: str
    in_reply_to: Word | None = None
    conversation_id: Word | None = None

    def __repr__(self) -> str:
        return f"LocalMessage(id={self.id!r})"  # its text belongs in no log

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]


class Member(Checked, frozen=True, kw_only=True):
    """A member of a route's team.

    Attributes:
        name: What messages call the sender.
        label: How the member signs; None for the name.
        active: Whether the member is still there.
    """

    name: Label
    label: Label | None = None
    active: bool = True

    @property
    def signature(self) -> str:
        return self.label or self.name

    def _faults(self) -> Iterator[str]:
        if not self.signature.isprintable() or not self.signature.strip():
            yield "label: must be printable, on one line"


class Topic(Checked, frozen=True, kw_only=True):
    """The topic that a route's messages go to.

    Attributes:
        message_thread_id: Telegram's id of it; None while there is none, which no active topic may have.
        state: ``"active"``; ``"repair_required"`` and anything else sends nothing.
    """

    message_thread_id: _TelegramId | None
    state: str

    def _faults(self) -> Iterator[str]:
        if self.state == "active" and self.message_thread_id is None:
            yield "message_thread_id: missing, in an active topic"


class Route(Checked, frozen=True, kw_only=True):
    """A way from a team to the user's chat.

    Attributes:
        id: Its id.
        chat: Decimal chat id or ``@name``.
        topic: The topic in it; None for a chat without topics, never for a topic that was lost.
        team: What the team is called in the prefix.
        state: ``"active"``; anything else sends nothing.
        members: All members of the team, the lead included.
    """

    id: Word
    chat: str
    topic: Topic | None
    team: Label
    state: str
    members: tuple[Member, ...]

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)

    def _faults(self) -> Iterator[str]:
        if not is_chat(self.chat):
            yield "chat: neither a decimal chat id nor @name"
        if not self.team.isprintable() or not self.team.strip():
            yield "team: must be printable, on one line"
        if any(count > 1 for count in Counter(member.name for member in self.members).values()):
            yield "members: a name twice"


class ReplyToTurn(Checked, frozen=True, kw_only=True):
    """A turn of the user that came in by the route; what answers it may go out by it.

    Attributes:
        route_id: The route it came by.
        inbound_key: The inbound message's key, as the program keeps it.
        inbound_message_id: Id of the local message that it became.
        conversation_id: The conversation that it began or went on with, where there are such.
        telegram_message_id: Telegram's id of the inbound message, to reply to it; None where unknown.
    """

    route_id: Word
    inbound_key: Word
    inbound_message_id: Word
    conversation_id: Word | None = None
    telegram_message_id: _TelegramId | None = None


class ManualPublish(Checked, frozen=True, kw_only=True):
    """An order to publish one message.

    Attributes:
        route_id: By which route.
        message_id: Id of the local message.
        requested_by: Who ordered it; only ``"user"`` may.
    """

    route_id: Word
    message_id: Word
    requested_by: str


class Earlier(Checked, frozen=True, kw_only=True):
    """What is on record about the same message on the same route.

    Attributes:
        status: As the record has it, e.g. ``"sent"``; ``"cancelled"`` where it was withheld.
        text_hash: `Decision.text_hash` of then.
    """

    status: Word
    text_hash: _Digest
