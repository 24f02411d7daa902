"""The metrics: what there is, as one table, and what each event adds to them. Pure.

OTLP and Prometheus are both served from this table: names are OpenTelemetry's, and `prometheus_name` is what
its exporters make of them. Labels have the values listed here and no others, so that no series is one too
many: chats, messages and descriptions are for logs and spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from telegram_connector import events
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
from telegram_connector.events import Event


class Kind(Enum):
    """What is done with its figures."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, eq=False)
class Instrument:
    """One metric.

    Attributes:
        name: OpenTelemetry's name of it.
        unit: UCUM; what stands in braces is an annotation and becomes no part of Prometheus's name.
        labels: Its label names.
        values: Every combination of their values, in the order of `labels`.
        buckets: Upper bounds of a histogram's buckets, the last one infinite and left out.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ((),)
    buckets: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name in the exposition format: unit and ``_total`` as suffixes."""
        name = self.name.replace(".", "_")
        if self.unit == "s":
            name += "_seconds"
        return f"{name}_total" if self.kind is Kind.COUNTER else name


class Measure(NamedTuple):
    """One figure: what to add to a counter or histogram, or what a gauge shows."""

    instrument: Instrument
    value: float
    labels: tuple[str, ...] = ()


# Every (disposition, reason) that `verdict` can say.
VERDICTS = (
    ("sent", "ok"),
    ("transient", "rate_limited"),
    ("transient", "server_error"),
    ("transient", "internal"),
    ("transient", "other"),
    ("unavailable", "unreachable"),
    ("unavailable", "server_error"),
    ("ambiguous", "no_answer"),
    ("ambiguous", "server_error"),
    ("ambiguous", "unreadable"),
    ("terminal", "refused"),
    ("terminal", "unreadable"),
    ("terminal", "gave_up"),
    ("terminal", "ambiguous"),
    ("terminal", "expired"),
    ("terminal", "conflict"),
    ("migrated", "migrated"),
    ("bot_fault", "refused"),
    ("concluded", "sent"),
    ("concluded", "cancelled"),
    ("deferred", "ledger"),
)
_FINAL = tuple(v for v in VERDICTS if v[0] in ("sent", "terminal", "concluded"))
_DEAD = tuple((reason,) for disposition, reason in VERDICTS if disposition == "terminal")
_TRIED = tuple((d,) for d in dict.fromkeys(v[0] for v in VERDICTS) if d not in ("concluded", "deferred"))

# A send takes some 50 ms; the Bot API may sit on one for ten seconds, and is given 30.
_SEND_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# From a send at once to a day of holding.
_WAIT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
# Telegram asks for a few seconds mostly, and for days at times.
_ASKED_SECONDS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)


def _name(name: str) -> str:
    return f"telegram_connector.{name}"


def _counter(name: str, unit: str, help_: str, labels: str = "", values: object = ((),)) -> Instrument:
    assert isinstance(values, tuple)
    return Instrument(_name(name), Kind.COUNTER, unit, help_, tuple(labels.split()), values)


def _gauge(name: str, unit: str, help_: str, labels: str = "", values: object = ((),)) -> Instrument:
    assert isinstance(values, tuple)
    return Instrument(_name(name), Kind.GAUGE, unit, help_, tuple(labels.split()), values)


RECEIVED = _counter("received", "{delivery}", "Deliveries taken in", "redelivery", (("false",), ("true",)))
ATTEMPTS = _counter(
    "attempts", "{attempt}", "Verdicts on messages, final or not", "disposition reason", VERDICTS
)
MESSAGES = _counter("messages", "{message}", "Messages that are finished with", "disposition reason", _FINAL)
DEAD_LETTERS = _counter("dead_letters", "{message}", "Messages kept as dead letters", "reason", _DEAD)
SEND_DURATION = Instrument(
    _name("send_duration"),
    Kind.HISTOGRAM,
    "s",
    "One call of sendMessage, connecting included",
    ("disposition",),
    _TRIED,
    _SEND_SECONDS,
)
PUBLISH_TO_SENT = Instrument(
    _name("publish_to_sent"),
    Kind.HISTOGRAM,
    "s",
    "From stored in the stream to accepted by Telegram",
    buckets=_WAIT_SECONDS,
)
RETRY_AFTER = Instrument(
    _name("retry_after"), Kind.HISTOGRAM, "s", "Waits that Telegram asked for", buckets=_ASKED_SECONDS
)
CONNECTIONS = _counter("connections", "{connection}", "Connections to NATS made")
CONNECTIONS_LOST = _counter("connections_lost", "{connection}", "Connections to NATS lost")
ROLE_CHANGES = _counter(
    "role_changes", "{change}", "Changes between active and standby", "role", (("active",), ("standby",))
)
SENT_PLAIN = _counter("sent_plain", "{message}", "Messages sent as plain text, their markup refused")
DELAYED = _counter("delayed", "{message}", "Messages that pacing has kept waiting for long")
LEASES_LAPSED = _counter("leases_lapsed", "{message}", "Deliveries dropped unsent, their lease over")
REMOVED_UNSEEN = _counter("removed_unseen", "{message}", "Messages the stream removed before they were read")
ALERTS_FAILED = _counter("alerts_failed", "{alert}", "Alerts that did not reach the operator's chat")
CRASHES = _counter("crashes", "{error}", "Internal errors over one message")

INFO = _gauge("info", "{connector}", "Always 1; its labels say what runs", "version stream")
BACKLOG = _gauge("backlog_messages", "{message}", "Messages handed over to nobody yet")
BACKLOG_AGE = _gauge("backlog_age", "s", "Age of the oldest message that waits here; 0 with none")
OUTSTANDING = _gauge(
    "outstanding_messages",
    "{message}",
    "Messages out with this connector",
    "state",
    (("waiting",), ("in_flight",), ("awaited",)),
)
OUTSTANDING_LIMIT = _gauge("outstanding_limit_messages", "{message}", "How many may be out at once")
LANES = _gauge("lanes", "{lane}", "Chats with a lane")
LANES_HELD = _gauge("lanes_held", "{lane}", "Chats that are held by flood control or backoff")
LONGEST_HOLD = _gauge("longest_hold", "s", "Until the longest hold of a chat ends; 0 with none")
CHATS_PAUSED = _gauge("chats_paused", "{chat}", "Chats paused by operators")
BOT_PAUSED = _gauge(
    "bot_paused",
    "{bot}",
    "1 while the bot sends nothing, or by single trials: its token or account is refused (fault), the Bot API"
    " cannot be used or floods (outage), an operator has paused it",
    "cause",
    (("fault",), ("outage",), ("operator",)),
)
IN_DOUBT = _gauge(
    "in_doubt_messages",
    "{message}",
    "Dead letters, of the newest 1,000, of which nobody knows whether they were sent and which no operator"
    " has resolved",
)
ACTIVE = _gauge("active", "{connector}", "1 for the connector that sends, 0 for one that stands by")
CONNECTED = _gauge("connected", "{connection}", "1 with a connection to NATS and the consumer bound")
LAST_ROUND_TRIP = _gauge(
    "last_round_trip_timestamp", "s", "When JetStream last answered about the consumer, seconds since 1970"
)
LAST_SENT = _gauge("last_sent_timestamp", "s", "When Telegram last accepted a message, seconds since 1970")
ALERTS_GATHERED = _gauge("alerts_gathered", "{message}", "Drops gathered for an alert that is not due yet")
QUEUE_DEPTH = _gauge(
    "queue_depth",
    "{entry}",
    "What waits between threads: deliveries to be read, settlements to be confirmed, alerts to be sent",
    "queue",
    (("deliveries",), ("settlements",), ("alerts",)),
)

TABLE = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))


def verdict(disposition: Disposition) -> tuple[str, str]:
    """(disposition, reason) as labels; one of `VERDICTS`."""
    match disposition:
        case Sent():
            return "sent", "ok"
        case Transient(status_code=status):
            return "transient", _refusal(status)
        case Unavailable(status_code=status):
            return "unavailable", "unreachable" if status is None else "server_error"
        case Ambiguous(status_code=status):
            if status is None:
                return "ambiguous", "no_answer"
            return "ambiguous", "server_error" if status >= 500 else "unreadable"
        case Terminal(reason=reason):
            return "terminal", reason
        case Migrated():
            return "migrated", "migrated"
        case BotFault():
            return "bot_fault", "refused"
        case Concluded(status=closed):
            return "concluded", closed
        case Deferred():
            return "deferred", "ledger"


def _refusal(status: int) -> str:
    if status == 429:
        return "rate_limited"
    if status >= 500:
        return "server_error"
    return "other" if status else "internal"


def measured(event: Event) -> Iterator[Measure]:
    """What an event adds to counters and histograms."""
    match event:
        case events.Attempted():
            yield from _attempted(event)
        case events.Received(hand_over=hand_over):
            yield Measure(RECEIVED, 1, ("true" if hand_over > 1 else "false",))
        case events.Connected():
            yield Measure(CONNECTIONS, 1)
        case events.ConnectionLost():
            yield Measure(CONNECTIONS_LOST, 1)
        case events.BecameActive():
            yield Measure(ROLE_CHANGES, 1, ("active",))
        case events.BecameStandby():
            yield Measure(ROLE_CHANGES, 1, ("standby",))
        case events.SentPlain():
            yield Measure(SENT_PLAIN, 1)
        case events.Delayed():
            yield Measure(DELAYED, 1)
        case events.LeaseLapsed(count=count):
            yield Measure(LEASES_LAPSED, count)
        case events.RemovedUnseen(first_sequence=first, last_sequence=last):
            yield Measure(REMOVED_UNSEEN, last - first + 1)
        case events.AlertFailed():
            yield Measure(ALERTS_FAILED, 1)
        case events.AttemptCrashed():
            yield Measure(CRASHES, 1)


def _attempted(event: events.Attempted) -> Iterator[Measure]:
    disposition = event.disposition
    labels = verdict(disposition)
    yield Measure(ATTEMPTS, 1, labels)
    if labels in _FINAL:
        yield Measure(MESSAGES, 1, labels)
    match disposition:
        case Sent() if event.since_stored_seconds is not None:
            yield Measure(PUBLISH_TO_SENT, max(0.0, event.since_stored_seconds))
        case Terminal(reason=reason) if event.dead_lettered:
            yield Measure(DEAD_LETTERS, 1, (reason,))
        case Transient(retry_after_seconds=asked) if asked is not None:
            yield Measure(RETRY_AFTER, asked)
