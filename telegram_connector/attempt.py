"""One delivery, once: from its envelope to a disposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from telegram_connector.classify import is_unparsable
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Deferred,
    Disposition,
    Sent,
    Terminal,
    Transient,
    Tried,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.ledger import Entry, Ledger, Outgoing
from telegram_connector.markup import plain

# A connection that was never made proves that nothing was sent, so it may be tried again at once.
CONNECT_PAUSES_SECONDS = (0.2, 1.0)


class BotApi(Protocol):
    """What an attempt needs of `telegram.TelegramClient`."""

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Tried: ...

    def get_me(self, deadline: float, *, number: int | None = None) -> Tried: ...

    def abort(self, number: int | None = None) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Attempt:
    """What an attempt came to.

    Attributes:
        disposition: The message's.
        outage: Why the bot as a whole must wait although the message is not `Unavailable`; else "".
        plain_after: Telegram's refusal of the markup, where the plain text was tried after it; else "".
    """

    disposition: Disposition
    outage: str = ""
    plain_after: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What an attempt may ask of the worker around it.

    Attributes:
        deadline: When the attempt must be over (monotonic seconds), inside the delivery's lease.
        pause: Waits some seconds; True when the relay is stopping.
        several_chats_err: Notes a 5xx or a lost answer; True when the one before it was another chat's.
        falls_back: Whether a message whose markup cannot be parsed is tried once more as plain text.
    """

    deadline: float
    pause: Callable[[float], bool]
    several_chats_err: Callable[[], bool]
    falls_back: bool = False


def attempt(outgoing: Outgoing, api: BotApi, ledger: Ledger, around: Surroundings, number: int) -> Attempt:
    """Try to deliver a message; `number` names this attempt for `BotApi.abort`."""
    reply_to = ledger.reply_target(outgoing)
    if isinstance(reply_to, Terminal | Deferred):
        # It may have been sent before, when what it replies to was still there.
        return Attempt(ledger.settled(outgoing) or reply_to)
    entry = ledger.open(outgoing, reply_to)
    if not isinstance(entry, Entry):
        return Attempt(entry)
    envelope = msgspec.structs.replace(outgoing.envelope, reply_to_message_id=reply_to)
    tried, outage, text = _send(envelope, entry, outgoing, api, ledger, around, number)
    if not text:
        ledger.close(entry, outgoing, tried)
        return Attempt(tried, outage)
    # A refusal proves that nothing was sent: what follows is an attempt of its own, on record as one.
    assert isinstance(tried, Terminal)
    ledger.close(entry, outgoing, Transient(tried.error_code, tried.description))
    entry = ledger.open(outgoing, reply_to)
    if not isinstance(entry, Entry):
        return Attempt(entry)
    envelope = msgspec.structs.replace(envelope, text=text, parse_mode=None)
    again, outage, _ = _send(envelope, entry, outgoing, api, ledger, around, number)
    if isinstance(again, Terminal):
        again = replace(again, description=f"{tried.description}; as plain text: {again.description}")
    ledger.close(entry, outgoing, again)
    return Attempt(again, outage, tried.description)


def _send(
    envelope: TelegramOutbound,
    entry: Entry,
    outgoing: Outgoing,
    api: BotApi,
    ledger: Ledger,
    around: Surroundings,
    number: int,
) -> tuple[Tried, str, str]:
    """What `_try` says, and the plain text to send after a refusal of the markup; "" for none."""
    try:
        tried, outage = _try(envelope, outgoing.chat, entry.parks, api, around, number)
        return tried, outage, _plain_text(envelope, tried) if around.falls_back else ""
    except Exception as error:
        # Nobody knows how far it got, and its record must not say for ever that it is on its way.
        ledger.close(entry, outgoing, Ambiguous(f"internal error: {type(error).__name__}"))
        raise


def _plain_text(envelope: TelegramOutbound, tried: Tried) -> str:
    if not (isinstance(tried, Terminal) and is_unparsable(tried) and envelope.parse_mode):
        return ""
    text = plain(envelope.text, envelope.parse_mode)
    return text if text.strip() else ""


def _try(
    envelope: TelegramOutbound, chat: str, parks: bool, api: BotApi, around: Surroundings, number: int
) -> tuple[Tried, str]:
    """Send, and find out whether a failure is the message's own; see `Attempt`."""
    tried = api.send(envelope, chat, around.deadline, number=number)
    for seconds in CONNECT_PAUSES_SECONDS:
        if not isinstance(tried, Unavailable) or around.pause(seconds):
            break
        tried = api.send(envelope, chat, around.deadline, number=number)
    if isinstance(tried, Transient) and tried.status_code >= 500:
        if not parks:
            return _server_error(tried, api, around, number), ""
        # Only a refusal proves that nothing was sent.
        tried = Ambiguous(tried.description, tried.status_code)
    if not isinstance(tried, Ambiguous):
        return tried, ""
    return replace(tried, parked=parks), _outage(tried, api, around, number)


def _outage(lost: Ambiguous, api: BotApi, around: Surroundings, number: int) -> str:
    """Why the whole bot must wait after an answer was lost; "" where it need not.

    The message is in doubt whatever getMe says; the next ones need not be. (When stopping there are none, and
    the time is needed for settling.)
    """
    if around.pause(0.0):
        return ""
    # As with a 5xx, one chat's lost answer right after another's is no message's own.
    if around.several_chats_err():
        return lost.description
    me = api.get_me(around.deadline, number=number)
    return "" if isinstance(me, Sent) else lost.description


def _server_error(error: Transient, api: BotApi, around: Surroundings, number: int) -> Tried:
    """A 5xx is the message's own failure only while the bot is otherwise fine."""
    down = Unavailable(error.description, error.status_code)
    if around.several_chats_err() or around.pause(0.0):
        return down
    me = api.get_me(around.deadline, number=number)
    if isinstance(me, BotFault):
        return me
    return error if isinstance(me, Sent) else down
