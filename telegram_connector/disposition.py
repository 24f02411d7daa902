"""What one attempt to send came to: a closed union with two readers.

`lanes` asks it whether the chat may go on, `settlement` what JetStream is told. `telegram.classify` makes
them; nothing else does, except that `attempt` may turn a `Transient` into `Unavailable` when it learns that
the Bot API as a whole is down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Sent:
    """Telegram has the message.

    Attributes:
        message_id: Telegram's id of it within the chat; None where a 200 with ``ok: true`` carried none.
        message_thread_id: The topic that Telegram put it in, None for none.
        chat_id: The chat that Telegram put it in, as a number; None where the answer did not say.
    """

    message_id: int | None
    message_thread_id: int | None = None
    chat_id: int | None = None


@dataclass(frozen=True)
class Transient:
    """Refused for now.

    A 429 costs the message no attempt; anything else does.

    Attributes:
        status_code: HTTP status or ``error_code``.
        description: Telegram's words, or ours where it said none.
        retry_after_seconds: How long Telegram asks to wait; None where it did not say.
    """

    status_code: int
    description: str
    retry_after_seconds: float | None = None

    @property
    def rate_limited(self) -> bool:
        """Whether this is flood control, which is nobody's failure."""
        return self.status_code == 429


@dataclass(frozen=True)
class Unavailable:
    """The Bot API as a whole cannot be used; the message surely was not sent.

    Attributes:
        description: Why, without the URL.
        status_code: HTTP status where there was an answer (5xx from several chats), else None.
    """

    description: str
    status_code: int | None = None


@dataclass(frozen=True)
class Ambiguous:
    """The request left and no readable answer came: Telegram may or may not have sent the message.

    Attributes:
        description: What happened to the answer.
        status_code: HTTP status where there was one (504, or a 200 that cannot be read), else None.
        parked: It must not be sent again by itself: an operator decides.
    """

    description: str
    status_code: int | None = None
    parked: bool = False


@dataclass(frozen=True)
class Terminal:
    """This message will never be accepted as it is.

    Attributes:
        error_code: Telegram's ``error_code``, else the HTTP status; 0 where the message never got that far.
        description: Telegram's words, or ours where it said none.
        reason: The dead letter's reason: ``refused``, ``unreadable``, ``gave_up``, ``ambiguous``,
            ``expired``, ``conflict``.
    """

    error_code: int
    description: str
    reason: str = "refused"


@dataclass(frozen=True)
class Migrated:
    """The group has become a supergroup with another id (``parameters.migrate_to_chat_id``)."""

    new_chat: str
    description: str = ""


@dataclass(frozen=True)
class BotFault:
    """The bot itself is refused (401, 404, 421, logged out, frozen): no message's fault."""

    status_code: int
    description: str


@dataclass(frozen=True)
class Concluded:
    """Nothing was sent: by the ledger's word this message's case is closed.

    Attributes:
        status: ``sent`` or ``cancelled``.
    """

    status: str


@dataclass(frozen=True)
class Deferred:
    """Nothing was sent, and nothing was asked of Telegram: the ledger cannot be used now.

    Attributes:
        description: Why.
    """

    description: str


Tried: TypeAlias = Sent | Transient | Unavailable | Ambiguous | Terminal | Migrated | BotFault
"""What came of asking the Bot API."""

Disposition: TypeAlias = Tried | Concluded | Deferred
