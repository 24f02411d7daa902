"""One delivery, once: from its content to a disposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Disposition,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError

# A connection that was never made proves that nothing was sent, so it may be tried again at once.
CONNECT_PAUSES_SECONDS = (0.2, 1.0)


class BotApi(Protocol):
    """What an attempt needs of `telegram.TelegramClient`."""

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Disposition: ...

    def get_me(self, deadline: float, *, number: int | None = None) -> Disposition: ...

    def abort(self, number: int | None = None) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Attempt:
    """What an attempt came to.

    Attributes:
        disposition: The message's.
        outage: Why the bot as a whole must wait although the message is not `Unavailable`; else "".
    """

    disposition: Disposition
    outage: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What an attempt may ask of the worker around it.

    Attributes:
        deadline: When the attempt must be over (monotonic seconds), inside the delivery's lease.
        pause: Waits some seconds; True when the relay is stopping.
        several_chats_err: Notes a 5xx or a lost answer; True when the one before it was another chat's.
    """

    deadline: float
    pause: Callable[[float], bool]
    several_chats_err: Callable[[], bool]


def attempt(
    content: TelegramOutbound | EnvelopeError, chat: str, api: BotApi, around: Surroundings, number: int
) -> Attempt:
    """Try to deliver `content` to `chat`; `number` names this attempt for `BotApi.abort`."""
    if isinstance(content, EnvelopeError):
        return Attempt(Terminal(0, str(content), "unreadable"))
    disposition = api.send(content, chat, around.deadline, number=number)
    for seconds in CONNECT_PAUSES_SECONDS:
        if not isinstance(disposition, Unavailable) or around.pause(seconds):
            break
        disposition = api.send(content, chat, around.deadline, number=number)
    match disposition:
        case Transient() if disposition.status_code >= 500:
            return _server_error(disposition, api, around, number)
        case Ambiguous() if not around.pause(0.0):
            # The message is in doubt whatever getMe says; the next ones need not be. (When stopping there
            # are none, and the time is needed for settling.)
            # As with a 5xx, one chat's lost answer right after another's is no message's own.
            if around.several_chats_err():
                return Attempt(disposition, disposition.description)
            me = api.get_me(around.deadline, number=number)
            return Attempt(disposition, "" if isinstance(me, Sent) else disposition.description)
    return Attempt(disposition)


def _server_error(error: Transient, api: BotApi, around: Surroundings, number: int) -> Attempt:
    """A 5xx is the message's own failure only while the bot is otherwise fine."""
    down = Unavailable(error.description, error.status_code)
    if around.several_chats_err() or around.pause(0.0):
        return Attempt(down)
    me = api.get_me(around.deadline, number=number)
    if isinstance(me, BotFault):
        return Attempt(me)
    return Attempt(error if isinstance(me, Sent) else down)
