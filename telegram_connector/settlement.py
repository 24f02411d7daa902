"""From a disposition to what JetStream is told and what the lane does: pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from telegram_connector.delivery import Ack, Command, Nak, Term
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Deferred,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)

LONGEST_BACKOFF_SECONDS = 300.0
LONGEST_OUTAGE_HOLD_SECONDS = 30.0
DEFER_SECONDS = 5.0


@dataclass(frozen=True)
class Policy:
    """What the settings say about settling.

    Attributes:
        ack_wait_seconds: A nak's delay is at most this: the server would hand the message over again anyway.
        max_attempts: Failed attempts of its own after which a message is given up.
        backoff_seconds: The first backoff; each further one doubles, up to 5 minutes.
    """

    ack_wait_seconds: float
    max_attempts: int
    backoff_seconds: float


@dataclass(frozen=True)
class Settlement:
    """What one attempt leads to.

    Attributes:
        disposition: The attempt's, or `Terminal` where it was one failure too many.
        command: What JetStream is told; None where the message is kept here and tried again.
        hold_seconds: For how long the chat sends nothing, from now.
        costs_attempt: Whether this was a failure of the message itself.
    """

    disposition: Disposition
    command: Command | None
    hold_seconds: float = 0.0
    costs_attempt: bool = False


def settle(
    disposition: Disposition,
    *,
    attempts: int,
    policy: Policy,
    bot_wait_seconds: float,
    last_hand_over: bool,
    random: Callable[[], float],
) -> Settlement:
    """What to do about `disposition`.

    Args:
        attempts: Failed attempts of this message so far, this one not counted.
        bot_wait_seconds: How long the bot is held now, for the dispositions that hold it.
        last_hand_over: The server would never hand the message over again, so it is kept instead of nak'd.
        random: Jitter in [0, 1); only ever lengthens.
    """
    match disposition:
        case Sent() | Concluded():
            return Settlement(disposition, Ack())
        case Deferred():
            wait = DEFER_SECONDS * (1 + random() / 10)
            # Its chat waits for its return; only what is kept here needs a hold for that.
            hold = wait if last_hand_over else 0.0
            return Settlement(disposition, _give_back(wait, policy, last_hand_over), hold)
        case Ambiguous() if disposition.parked:
            parked = Terminal(disposition.status_code or 0, disposition.description, "ambiguous")
            return Settlement(parked, Term("ambiguous"))
        case Terminal():
            return Settlement(disposition, Term(disposition.reason))
        case Migrated():
            return Settlement(disposition, None)
        case Unavailable() | BotFault():
            wait = bot_wait_seconds
            hold = 0.0
            if isinstance(disposition, Unavailable) and disposition.status_code is not None:
                # Two messages that are answered 5xx for their own sake look like an outage. Without a hold
                # they would come back at once, first in line, and close the bot again and again.
                wait = hold = max(wait, min(policy.backoff_seconds, LONGEST_OUTAGE_HOLD_SECONDS))
            return Settlement(disposition, _give_back(wait, policy, last_hand_over), hold)
        case Transient() if disposition.rate_limited:
            asked = disposition.retry_after_seconds
            wait = policy.backoff_seconds if asked is None else asked
            # Telegram counts in whole seconds and lengthens the wait of those who come early.
            hold = wait + 0.1 + random() * min(1.0, 0.05 * wait)
            return Settlement(disposition, _give_back(wait, policy, last_hand_over), hold)
        case Transient() | Ambiguous():
            if attempts + 1 >= policy.max_attempts:
                terminal = Terminal(disposition.status_code or 0, disposition.description, "gave_up")
                return Settlement(terminal, Term("gave_up"), costs_attempt=True)
            wait = backoff(attempts + 1, policy.backoff_seconds) * (1 + random() / 10)
            if isinstance(disposition, Transient):
                wait = max(wait, disposition.retry_after_seconds or 0.0)  # a 503 may name its time, too
            return Settlement(disposition, _give_back(wait, policy, last_hand_over), wait, costs_attempt=True)


def backoff(failures: int, first_seconds: float) -> float:
    """Seconds to wait after the given number of failures (1 or more)."""
    return min(first_seconds * 2.0 ** min(failures - 1, 32), max(LONGEST_BACKOFF_SECONDS, first_seconds))


def _give_back(wait: float, policy: Policy, last_hand_over: bool) -> Command | None:
    return None if last_hand_over else Nak(min(wait, policy.ack_wait_seconds))
