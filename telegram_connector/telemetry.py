"""Events as log lines: level, words and structured attributes. No text of a message, ever.

A storm of one fault is its first line, and then one line a minute with the count. What was dropped is not
gathered: each of those lines names another message that was lost.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace

from telegram_connector import events
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Deferred,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.events import Attempted, Event, Subject
from telegram_connector.pauses import whom

GATHER_SECONDS = 60.0
MOST_STORMS = 100  # at once; the oldest is told early

logger = logging.getLogger("telegram_connector")


@dataclass
class _Storm:
    """A fault that was said and goes on."""

    since: float
    last: Event
    more: int = 0


class EventLog:
    """An observer that writes log lines to the logger ``telegram_connector``. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._storms: dict[Hashable, _Storm] = {}
        self._next_over = float("inf")

    def __call__(self, event: Event) -> None:
        """Write what there is to say of an event, and of storms whose minute is over."""
        now = self._clock()
        everything = isinstance(event, events.Stopped | events.BotReleased)
        over = everything or now >= self._next_over
        if not over and _is_quiet(event) and not logger.isEnabledFor(logging.DEBUG):
            return
        with self._lock:
            storms = self._over(now, everything=everything) if over else []
            is_news = self._is_news(event, now, storms)
        for storm in storms:
            _write(storm.last, more=storm.more, seconds=now - storm.since)
        _write(event, quietly=not is_news)

    def _over(self, now: float, *, everything: bool) -> list[_Storm]:
        """Storms to tell of; those that go on begin anew, the others are forgotten."""
        told = []
        for key, storm in list(self._storms.items()):
            if everything or now >= storm.since + GATHER_SECONDS:
                del self._storms[key]
                if storm.more:
                    told.append(storm)
                    if not everything:
                        self._storms[key] = _Storm(now, storm.last)
        self._set_next()
        return told

    def _is_news(self, event: Event, now: float, told: list[_Storm]) -> bool:
        key = fault_of(event)
        if key is None:
            return True
        storm = self._storms.get(key)
        if storm is not None:
            storm.more += 1
            storm.last = event
            return False
        if len(self._storms) >= MOST_STORMS and (oldest := self._storms.pop(next(iter(self._storms)))).more:
            told.append(oldest)
        self._storms[key] = _Storm(now, event)
        self._set_next()
        return True

    def _set_next(self) -> None:
        first = min((storm.since for storm in self._storms.values()), default=float("inf"))
        self._next_over = first + GATHER_SECONDS

    def forget(self) -> None:
        """In a forked child: the parent tells of its storms. The lock may have been held at the fork."""
        self._lock = threading.Lock()
        self._storms.clear()
        self._set_next()


log_event = EventLog()
os.register_at_fork(after_in_child=log_event.forget)


def _write(event: Event, *, quietly: bool = False, more: int = 0, seconds: float = 0.0) -> None:
    level, words, attributes = describe(event)
    if quietly:
        level = logging.DEBUG
    if not logger.isEnabledFor(level):
        return
    if more:
        words = f"{more} more like this within {seconds:.0f} s: {words}"
        attributes = {**attributes, "repeated": more}
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        attributes |= {
            "trace_id": trace.format_trace_id(span.trace_id),
            "span_id": trace.format_span_id(span.span_id),
        }
    logger.log(level, words, extra=attributes, exc_info=getattr(event, "error", None))


def fault_of(event: Event) -> Hashable | None:
    """What makes two events the same fault; None for what is said each time."""
    match event:
        case Attempted(disposition=Transient() | Ambiguous() | Unavailable() | BotFault() as refused):
            # Waits and chats differ from one to the next.
            return type(refused), refused.status_code, _without_numbers(refused.description)
        case Attempted(disposition=Concluded(status)):
            return Concluded, status
        case events.AttemptCrashed(error=error):
            return type(event), repr(error)
        case events.BotHeld(reason=reason, fault=fault):
            return type(event), _without_numbers(reason), fault
        case events.ChatHeld(seconds=seconds, reason=reason) if seconds < GATHER_SECONDS:
            # One that outlasts the count is said, whichever chats are held besides.
            return type(event), _without_numbers(reason)
        case events.NotComingBack(reason=reason):
            return type(event), reason
        case events.ChatReleased():
            return (type(event),)
        case events.SentPlain() | events.Delayed():
            return (type(event),)
        case events.MsgIdDiffers() | events.TopicIgnored() | events.LeaseLapsed() | events.AlreadySent():
            return (type(event),)
    return None


def _without_numbers(text: str) -> str:
    return re.sub(r"[0-9]+", "#", text)


def _is_quiet(event: Event) -> bool:
    """Whether this is one of the events per message, which are many and said at DEBUG only."""
    return isinstance(event, events.Received) or (
        isinstance(event, Attempted) and isinstance(event.disposition, Sent)
    )


def describe(event: Event) -> tuple[int, str, dict[str, Any]]:
    """(level, words, attributes) of an event."""
    match event:
        case events.Attempted():
            return _attempted(event)
        case events.Dormant(missing):
            return logging.WARNING, f"dormant: {' and '.join(missing)} not set", {}
        case events.Started():
            return _started(event)
        case events.Stopping(reason):
            return logging.INFO, f"stopping: {reason}", {}
        case events.Stopped(seconds, given_back):
            words = f"stopped in {seconds:.2f} s, gave {given_back} messages back unsent"
            return logging.INFO, words, {"given_back": given_back, "duration_ms": round(seconds * 1000, 1)}
        case events.Connected(server, version):
            return logging.INFO, f"connected to nats-server {version} at {server}", {}
        case events.ConnectionLost(reason):
            return logging.WARNING, f"connection to NATS lost ({reason}); nothing is sent meanwhile", {}
        case events.ConnectFailed(cause, setting, operator_fault):
            level = logging.ERROR if operator_fault else logging.WARNING
            return level, f"cannot connect to NATS: {cause}; see {setting}; trying on", {"error_msg": cause}
        case events.BindFailed(cause, setting, operator_fault):
            level = logging.ERROR if operator_fault else logging.WARNING
            return level, f"cannot bind the consumer: {cause}; see {setting}; trying on", {"error_msg": cause}
        case events.Bound(stream, durable, created, pending, outstanding, start):
            return _bound(stream, durable, created, pending, outstanding, start)
        case events.ConsumerUpdated(differences):
            return logging.INFO, f"consumer updated: {'; '.join(differences)}", {}
        case events.ConsumerDiffers():
            return _differs(event)
        case events.ConsumerGone(reason):
            return logging.WARNING, f"the consumer is gone ({reason}); binding anew", {}
        case events.BecameActive(awaited):
            words = f"active: this connector sends; {awaited} messages of a predecessor are awaited"
            return logging.INFO, words, {"awaited": awaited}
        case events.BecameStandby(given_back):
            words = f"standby: another connector sends; {given_back} deliveries given back"
            return logging.INFO, words, {"given_back": given_back}
        case events.StandbyUnsupported(version):
            words = f"nats-server {version} has no pinned clients (2.11): connectors share the consumer"
            return logging.INFO, words, {}
        case events.StateUnavailable(reason):
            words = f"attempts and ack floor are kept in memory only: {reason}"
            return logging.WARNING, words, {"error_msg": reason}
        case events.LedgerUnavailable(reason, waits):
            what = "what must not be doubled waits" if waits else "sending goes on, UNRECORDED"
            return logging.WARNING, f"the ledger cannot be used, {what}: {reason}", {"error_msg": reason}
        case events.LedgerBack(unrecorded):
            words = f"the ledger is back; {unrecorded} sends were not recorded meanwhile"
            return logging.INFO, words, {"unrecorded": unrecorded}
        case events.TopicIgnored(subject, asked, found):
            words = f"Telegram put a message for topic {asked} into {found or 'the general chat'}"
            return logging.WARNING, words, {**_subject(subject), "message_thread_id": asked}
        case events.SentPlain(subject, refusal, count):
            words = f"sent as plain text ({count} so far), since its markup was refused: {refusal}"
            return logging.WARNING, words, {**_subject(subject), "error_msg": refusal, "plain_count": count}
        case events.Received(subject, hand_over):
            return logging.DEBUG, "received", {**_subject(subject), "hand_over": hand_over}
        case events.MsgIdDiffers(subject, header):
            words = "msg_id in the body differs from the Nats-Msg-Id header; the body counts"
            return logging.WARNING, words, {**_subject(subject), "header_msg_id": header[:200]}
        case events.AttemptCrashed(subject, _):
            return logging.ERROR, "internal error over one message; it is tried again", _subject(subject)
        case events.AlreadySent(subject):
            words = "came back although it was settled; settled again, not sent again"
            return logging.INFO, words, _subject(subject)
        case events.ChatHeld(chat, seconds, reason):
            words = f"chat held for {seconds:.1f} s: {reason}"
            return logging.INFO, words, {"chat": chat, "retry_after": round(seconds, 3)}
        case events.Delayed(subject, seconds):
            words = f"delayed by pacing for more than {seconds:.0f} s; it is sent when its turn comes"
            return logging.INFO, words, _subject(subject)
        case events.ChatReleased(chat):
            return logging.INFO, "chat released", {"chat": chat}
        case events.BotHeld():
            return _bot_held(event)
        case events.BotReleased(reason, seconds):
            return logging.INFO, f"sending again after {seconds:.1f} s ({reason})", {}
        case events.Paused(chat, seconds, reason):
            how_long = "until resumed" if seconds is None else f"for {seconds:.0f} s"
            words = f"{whom(chat)} PAUSED by an operator {how_long}{': ' if reason else ''}{reason}"
            return logging.WARNING, words, {"chat": chat}
        case events.Resumed(chat, seconds, by_itself):
            how = "its time is over" if by_itself else "by an operator"
            return logging.INFO, f"{whom(chat)} resumed after {seconds:.0f} s: {how}", {"chat": chat}
        case events.PausesUnreadable(reason):
            words = f"what operators have paused cannot be read, what was known goes on: {reason}"
            return logging.WARNING, words, {"error_msg": reason}
        case events.StatusUnanswered(reason):
            return logging.WARNING, f"the command status is not answered: {reason}", {"error_msg": reason}
        case events.ChatMigrated(old, new):
            words = f"group {old} is now supergroup {new}; its messages follow. Tell its publishers"
            return logging.WARNING, words, {"chat": old, "new_chat": new}
        case events.LeaseLapsed(count, first):
            words = f"{count} leases lapsed, dropped unsent; the server hands them over again"
            return logging.WARNING, words, {"stream_seq": first}
        case events.NotComingBack(sequence, chat, reason):
            level = logging.INFO if reason == "settled" else logging.WARNING
            words = f"not waiting for sequence {sequence} any longer: {reason}"
            return level, words, {"stream_seq": sequence, "chat": chat}
        case events.Saturated(outstanding, limit, chats):
            words = f"saturated: {outstanding} of {limit} messages are out, most for {', '.join(chats)}"
            return logging.WARNING, words, {}
        case events.BacklogOld(seconds, limit):
            hours, most = seconds / 3600, limit / 3600
            words = f"the oldest message is {hours:.1f} h old; the stream deletes at {most:.1f} h"
            return logging.WARNING, words, {}
        case events.RemovedUnseen(first, last):
            words = (
                f"up to {last - first + 1} messages were removed from the stream unseen: {first} to {last}"
            )
            return logging.ERROR, words, {"stream_seq": first}
        case events.DeadStreamMissing(stream):
            words = f"no stream {stream} for dead letters; make it with: telegram-connector provision"
            return logging.WARNING, words, {}
        case events.DeadLetterDelayed(sequence, reason):
            words = f"a dead letter cannot be stored yet, its message is kept until it is: {reason}"
            return logging.WARNING, words, {"stream_seq": sequence, "error_msg": reason}
        case events.AlertFailed(reason):
            return logging.WARNING, f"an alert could not be sent: {reason}", {"error_msg": reason}
        case events.MetricsUnserved(reason):
            return logging.ERROR, f"the metrics page is not served: {reason}", {"error_msg": reason}
        case events.HeartbeatUnheard(reason):
            return logging.WARNING, f"no heartbeats are published: {reason}", {"error_msg": reason}
        case events.DoubtsUncounted(reason):
            return logging.WARNING, f"messages in doubt are not counted: {reason}", {"error_msg": reason}
        case events.FiguresTold():
            return _figures(event)
        case events.ThreadDied(thread, _):
            return logging.CRITICAL, f"thread {thread} died; the relay stops", {}


def _attempted(event: Attempted) -> tuple[int, str, dict[str, Any]]:
    attributes = {
        **_subject(event.subject),
        "attempt": event.attempt,
        "duration_ms": round(event.duration_ms, 1),
    }
    match event.disposition:
        case Sent(message_id):
            return logging.DEBUG, "sent", {**attributes, "status_code": 200, "message_id": message_id}
        case Concluded(status):
            words = f"not sent again: the ledger says {status}"
            return logging.INFO, words, {**attributes, "settled": event.settled}
        case Deferred(description):
            words = f"not tried: {description}"
            attributes |= {"error_msg": description, "retry_after": event.delay_seconds}
            return logging.DEBUG, words, {**attributes, "settled": event.settled}
        case Terminal(code, description, reason):
            kept = "" if event.dead_lettered else ", NOT KEPT as a dead letter"
            words = f"dropped ({reason}{kept}): {description}"
            return logging.ERROR, words, {**attributes, "status_code": code, "error_msg": description}
        case Transient(code, description, retry_after):
            words = f"refused for now: {description}"
        case Ambiguous(description, maybe_code):
            words, code, retry_after = f"no answer, may have been sent: {description}", maybe_code or 0, None
        case Unavailable(description, maybe_code):
            words, code, retry_after = f"not sent: {description}", maybe_code or 0, None
        case BotFault(code, description):
            words, retry_after = f"the bot is refused: {description}", None
        case Migrated(new_chat, description):
            return logging.INFO, f"follows its group to {new_chat}", {**attributes, "error_msg": description}
    attributes |= {"status_code": code, "error_msg": description, "settled": event.settled}
    attributes["retry_after"] = retry_after if retry_after is not None else event.delay_seconds
    return logging.WARNING, words, attributes


def _figures(event: events.FiguresTold) -> tuple[int, str, dict[str, Any]]:
    backlog = "unknown" if event.backlog is None else event.backlog
    words = (
        f"{event.role}, last {event.seconds:.0f} s: {event.sent} sent, {event.retried} to be tried again,"
        f" {event.dropped} dropped; now {event.outstanding} out, backlog {backlog}, {event.held} chats held"
    )
    if event.outstanding:
        words += f", the oldest {event.oldest_seconds:.0f} s old"
    if event.bot:
        words += f"; the bot waits: {event.bot}"
    attributes = {
        "sent": event.sent,
        "retried": event.retried,
        "dropped": event.dropped,
        "outstanding": event.outstanding,
        "backlog": event.backlog,
        "oldest_seconds": event.oldest_seconds,
        "held": event.held,
    }
    return logging.INFO, words, attributes


def _started(event: events.Started) -> tuple[int, str, dict[str, Any]]:
    attributes = {"servers": list(event.servers), "durable": event.durable, "api": event.api_base_url}
    if event.api_is_telegram:
        return logging.INFO, f"relaying from {', '.join(event.servers)} to Telegram", attributes
    words = f"the API base {event.api_base_url} IS NOT TELEGRAM'S: messages go there instead"
    return logging.WARNING, words, attributes


def _differs(event: events.ConsumerDiffers) -> tuple[int, str, dict[str, Any]]:
    words = f"the consumer differs and may not be changed: {'; '.join(event.differences)}"
    if event.finite_max_deliver is None:
        return logging.WARNING, words, {}
    words += f". Messages are kept here, not given back, at hand-over {event.finite_max_deliver}"
    return logging.ERROR, words, {}


def _bot_held(event: events.BotHeld) -> tuple[int, str, dict[str, Any]]:
    attributes = {"error_msg": event.reason, "retry_after": round(event.seconds, 3)}
    if event.fault:
        words = f"BOT PAUSED, nothing is sent or dropped: {event.reason}; next try in {event.seconds:.1f} s"
        return logging.ERROR, words, attributes
    return logging.WARNING, f"bot held for {event.seconds:.1f} s: {event.reason}", attributes


def _bound(
    stream: str, durable: str, created: bool, pending: int, outstanding: int, start: int | None
) -> tuple[int, str, dict[str, Any]]:
    attributes = {"pending": pending, "outstanding": outstanding}
    if not created:
        words = f"bound to {stream}/{durable}: {pending} waiting, {outstanding} handed over"
        return logging.INFO, words, attributes
    if start is None:
        words = f"consumer {stream}/{durable} created from the start: all {pending} messages will be sent"
    else:
        words = f"consumer {stream}/{durable} made again from sequence {start}: {pending} waiting"
    return logging.WARNING, words, attributes


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "nats_msg_id": subject.nats_msg_id[:200],
        "chat": subject.chat,
        "kind": subject.kind and subject.kind[:200],
        "stream_seq": subject.stream_seq,
    }
