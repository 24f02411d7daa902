"""What happened, as frozen records for an injected observer.

Logic never logs: it hands one of these to its observer, and `telemetry` makes log lines of them. No event
carries a message's text or the bot token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from telegram_connector.disposition import Disposition


@dataclass(frozen=True)
class Subject:
    """The message that an event is about: the seeds' log attributes."""

    nats_msg_id: str
    chat: str
    kind: str | None
    stream_seq: int


@dataclass(frozen=True)
class Dormant:
    """There is nothing to run with: these variables are unset or empty."""

    missing: tuple[str, ...]


@dataclass(frozen=True)
class Started:
    """The relay runs."""

    api_base_url: str
    api_is_telegram: bool
    servers: tuple[str, ...]
    durable: str


@dataclass(frozen=True)
class Stopping:
    """The relay was asked to stop."""

    reason: str


@dataclass(frozen=True)
class Stopped:
    """The relay has stopped; `given_back` deliveries were nak'd for whoever comes next."""

    seconds: float
    given_back: int


@dataclass(frozen=True)
class Connected:
    """A connection to NATS was made."""

    server: str
    version: str


@dataclass(frozen=True)
class ConnectionLost:
    """The connection to NATS is gone."""

    reason: str


@dataclass(frozen=True)
class ConnectFailed:
    """No connection to NATS for now; said when the cause changes, not per try."""

    cause: str
    setting: str
    operator_fault: bool


@dataclass(frozen=True)
class Bound:
    """The durable consumer is bound."""

    stream: str
    durable: str
    created: bool
    pending: int
    outstanding: int
    start_sequence: int | None


@dataclass(frozen=True)
class BindFailed:
    """The durable cannot be bound for now; said when the cause changes, not per try."""

    cause: str
    setting: str
    operator_fault: bool


@dataclass(frozen=True)
class ConsumerDiffers:
    """The durable differs from what it should be and may not be changed."""

    differences: tuple[str, ...]
    finite_max_deliver: int | None


@dataclass(frozen=True)
class ConsumerUpdated:
    """The durable was changed to what it should be."""

    differences: tuple[str, ...]


@dataclass(frozen=True)
class ConsumerGone:
    """The durable vanished under us."""

    reason: str


@dataclass(frozen=True)
class BecameActive:
    """This connector is the one that sends; `awaited` messages of a predecessor are waited for first."""

    awaited: int


@dataclass(frozen=True)
class BecameStandby:
    """Another connector is the one that sends; `given_back` deliveries were nak'd for it."""

    given_back: int


@dataclass(frozen=True)
class StandbyUnsupported:
    """The server knows no pinned clients: all connectors of a durable share it."""

    version: str


@dataclass(frozen=True)
class StateUnavailable:
    """Attempts and the ack floor are kept in memory only, or one of them could not be written."""

    reason: str


@dataclass(frozen=True)
class LedgerUnavailable:
    """The ledger cannot be read or written; said when the reason changes, not per try.

    `waits`: messages are not sent meanwhile, rather than sent unrecorded.
    """

    reason: str
    waits: bool


@dataclass(frozen=True)
class LedgerBack:
    """The ledger can be used again; `unrecorded` messages were sent without it meanwhile."""

    unrecorded: int


@dataclass(frozen=True)
class TopicIgnored:
    """Telegram has put a message into another topic than the one that was asked for, without a word."""

    subject: Subject
    asked: int
    found: int | None


@dataclass(frozen=True)
class SentPlain:
    """A message whose markup was refused went out as its plain text; the `count`-th since the start."""

    subject: Subject
    refusal: str
    count: int


@dataclass(frozen=True)
class Received:
    """A delivery was taken in."""

    subject: Subject
    hand_over: int


@dataclass(frozen=True)
class MsgIdDiffers:
    """The body's msg_id is not the Nats-Msg-Id header; the body wins."""

    subject: Subject
    header: str


@dataclass(frozen=True)
class Attempted:
    """One attempt to send is over.

    Attributes:
        attempt: The failed attempts of this message, this one included if it counts.
        duration_ms: From the first byte of the attempt to its disposition, milliseconds.
        settled: ``ack``, ``nak``, ``term`` or ``kept``.
        delay_seconds: The nak's delay, or how long a kept one waits.
        dead_lettered: Whether what was dropped is kept as a dead letter.
        since_stored_seconds: How long ago the stream stored the message, by two machines' clocks.
    """

    subject: Subject
    disposition: Disposition
    attempt: int
    duration_ms: float
    settled: str
    delay_seconds: float | None
    dead_lettered: bool = False
    since_stored_seconds: float | None = None


@dataclass(frozen=True)
class AttemptCrashed:
    """A bug of ours over one message."""

    subject: Subject
    error: BaseException


@dataclass(frozen=True)
class AlreadySent:
    """A message that this process has settled came back (the server forgot): settled again, not sent."""

    subject: Subject


@dataclass(frozen=True)
class ChatHeld:
    """A chat sends nothing for a while."""

    chat: str
    seconds: float
    reason: str


@dataclass(frozen=True)
class Delayed:
    """Pacing has kept a message waiting for long; it is sent when its turn comes. Said once per message.

    Attributes:
        seconds: The bound that its wait has passed.
    """

    subject: Subject
    seconds: float


@dataclass(frozen=True)
class ChatReleased:
    """A chat's hold is over."""

    chat: str


@dataclass(frozen=True)
class BotHeld:
    """The whole bot sends nothing for a while; `fault` says that its token or account is refused."""

    reason: str
    seconds: float
    fault: bool


@dataclass(frozen=True)
class BotReleased:
    """A send was accepted again after a hold of the bot."""

    reason: str
    seconds: float


@dataclass(frozen=True)
class Paused:
    """An operator has paused a chat, or the bot (``""``); for so many seconds, None for until resumed."""

    chat: str
    seconds: float | None
    reason: str


@dataclass(frozen=True)
class Resumed:
    """A pause is over, by command or by itself; `alert` where this connector is the one to tell operators.

    Who pauses and resumes by command tells them then and there: it works without any connector.
    """

    chat: str
    seconds: float
    by_itself: bool
    alert: bool = False


@dataclass(frozen=True)
class PausesUnreadable:
    """What operators have paused cannot be read; what was known before goes on."""

    reason: str


@dataclass(frozen=True)
class StatusUnanswered:
    """Requests for the status cannot be heard or answered; nothing else is the matter. Said on change."""

    reason: str


@dataclass(frozen=True)
class ChatMigrated:
    """A group became a supergroup; its messages follow it."""

    old: str
    new: str


@dataclass(frozen=True)
class LeaseLapsed:
    """Deliveries were dropped unsent, as they may be somebody else's by now; the server sends them again."""

    count: int
    first_sequence: int


@dataclass(frozen=True)
class NotComingBack:
    """An awaited message will not come again: its chat goes on without it."""

    sequence: int
    chat: str
    reason: str


@dataclass(frozen=True)
class Saturated:
    """The connector holds nearly all the messages it may; past the limit other chats wait."""

    outstanding: int
    limit: int
    chats: tuple[str, ...]


@dataclass(frozen=True)
class BacklogOld:
    """The oldest message that waits is near the age at which the stream deletes it."""

    seconds: float
    limit_seconds: float


@dataclass(frozen=True)
class RemovedUnseen:
    """The stream has lost messages that were never handed over: by age, size or a purge."""

    first_sequence: int
    last_sequence: int


@dataclass(frozen=True)
class DeadStreamMissing:
    """There is no stream for dead letters: what is dropped stays readable in its stream only."""

    stream: str


@dataclass(frozen=True)
class DeadLetterDelayed:
    """A dead letter cannot be stored for now; its message is kept until it is. Said on change."""

    sequence: int
    reason: str


@dataclass(frozen=True)
class AlertFailed:
    """An alert did not reach the operator's chat; it is not tried again."""

    reason: str


@dataclass(frozen=True)
class MetricsUnserved:
    """The metrics page cannot be served; nothing else is the matter."""

    reason: str


@dataclass(frozen=True)
class HeartbeatUnheard:
    """Heartbeats cannot be published; nothing else is the matter. Said on change."""

    reason: str


@dataclass(frozen=True)
class DoubtsUncounted:
    """Messages in doubt cannot be counted for the gauge; nothing else is the matter. Said on change."""

    reason: str


@dataclass(frozen=True)
class FiguresTold:
    """The figures of the last while, now and then and only when there is something to say.

    Attributes:
        seconds: Since they were told last.
        sent: Messages that Telegram accepted meanwhile.
        retried: Attempts that were refused or failed meanwhile, and come again.
        dropped: Messages that were dropped meanwhile.
        outstanding: Messages out with this connector now.
        backlog: Messages handed over to nobody yet; None when unknown.
        oldest_seconds: Age of the oldest message that waits here; 0 with none.
        held: Chats that are held now.
        role: ``active`` or ``standby``.
        bot: Why the bot sends nothing, or by single trials; "" while it sends freely.
    """

    seconds: float
    sent: int
    retried: int
    dropped: int
    outstanding: int
    backlog: int | None
    oldest_seconds: float
    held: int
    role: str
    bot: str


@dataclass(frozen=True)
class ThreadDied:
    """A thread of the relay died of a bug; the relay stops."""

    thread: str
    error: BaseException


Event: TypeAlias = (
    Dormant
    | Started
    | Stopping
    | Stopped
    | Connected
    | ConnectionLost
    | ConnectFailed
    | Bound
    | BindFailed
    | ConsumerDiffers
    | ConsumerUpdated
    | ConsumerGone
    | BecameActive
    | BecameStandby
    | StandbyUnsupported
    | StateUnavailable
    | LedgerUnavailable
    | LedgerBack
    | TopicIgnored
    | SentPlain
    | Received
    | MsgIdDiffers
    | Attempted
    | AttemptCrashed
    | AlreadySent
    | ChatHeld
    | Delayed
    | ChatReleased
    | BotHeld
    | BotReleased
    | Paused
    | Resumed
    | PausesUnreadable
    | StatusUnanswered
    | ChatMigrated
    | LeaseLapsed
    | NotComingBack
    | Saturated
    | BacklogOld
    | RemovedUnseen
    | DeadStreamMissing
    | DeadLetterDelayed
    | AlertFailed
    | MetricsUnserved
    | HeartbeatUnheard
    | DoubtsUncounted
    | FiguresTold
    | ThreadDied
)

Observer: TypeAlias = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """The observer of those who want none."""
