"""What the operator is told, and when. A sender thread sends it, and the bridge publishes it.

The first drop goes out at once; those that follow within a minute are gathered into one summary. An alert
never carries a message's text. Nothing is alerted about alerts, so none can beget another.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import msgspec

from telegram_connector import events
from telegram_connector.disposition import Terminal
from telegram_connector.events import Event
from telegram_connector.pauses import whom

GATHER_SECONDS = 60.0
NAMED_CHATS = 10
MAX_DESCRIPTION = 200
SCHEMA_VERSION = 1
NATS_ONLY = {"bot_paused", "bot_resumed", "resumed"}  # told to no chat: the bot cannot, or an operator knows


@dataclass(frozen=True)
class Drop:
    """A message that was not delivered, and why."""

    msg_id: str
    chat: str
    kind: str | None
    reason: str
    error_code: int
    description: str
    stream_seq: int
    stored: bool


@dataclass(frozen=True)
class Notice:
    """Something else that an operator must know.

    Attributes:
        type: ``bot_paused``, ``bot_resumed``, ``saturated``, ``backlog_old``, ``removed_unseen``, ...
        text: One sentence.
        facts: More, for programs.
    """

    type: str
    text: str
    facts: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Alert:
    """One alert: `text` for Telegram (plain), `event` for ``telegram.alerts``.

    Attributes:
        to_telegram: Whether the chat is told too; what says that the bot is refused is not.
    """

    text: str
    event: bytes
    to_telegram: bool


@dataclass
class _Gathered:
    """Drops since the last alert about drops."""

    count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    chats: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    first: Drop | None = None
    last: Drop | None = None


class Alerts:
    """Gathers what happened and says when an alert is due. Thread-safe.

    Args:
        durable: Names this connector in events.
        tell_chat: Whether drops are also told to the operator's chat (``META_ALERT_ON_DROP``).
    """

    def __init__(self, durable: str, tell_chat: bool) -> None:
        self._durable = durable
        self._tell_chat = tell_chat
        self._lock = threading.Lock()
        self._drops = _Gathered()
        self._quiet_until = float("-inf")
        self._notices: list[Notice] = []
        self._paused = False

    def observe(self, event: Event) -> None:
        """Note an event, if an operator must hear of it."""
        with self._lock:
            if isinstance(event, events.Attempted) and isinstance(event.disposition, Terminal):
                self._dropped(event, event.disposition)
                return
            notice = self._notice(event)
            if notice is not None and notice not in self._notices:
                self._notices.append(notice)

    @property
    def gathered(self) -> int:
        """How many drops wait to be told."""
        with self._lock:
            return self._drops.count

    def due(self, now: float, wall: float) -> list[Alert]:
        """The alerts that are due now; each is returned once.

        Args:
            now: Monotonic seconds.
            wall: Seconds since 1970.
        """
        with self._lock:
            alerts = [self._of_notice(notice, wall) for notice in self._notices]
            self._notices = []
            if self._drops.count and now >= self._quiet_until:
                alerts.append(self._of_drops(wall))
                self._drops = _Gathered()
                self._quiet_until = now + GATHER_SECONDS
            return alerts

    def _dropped(self, event: events.Attempted, terminal: Terminal) -> None:
        subject = event.subject
        drop = Drop(
            subject.nats_msg_id,
            subject.chat,
            subject.kind,
            terminal.reason,
            terminal.error_code,
            terminal.description,
            subject.stream_seq,
            event.dead_lettered,
        )
        gathered = self._drops
        gathered.count += 1
        gathered.reasons[drop.reason] += 1
        gathered.chats[drop.chat] += 1
        gathered.lost += not drop.stored
        gathered.first = gathered.first or drop
        gathered.last = drop

    def _notice(self, event: Event) -> Notice | None:
        match event:
            case events.BotHeld() if event.fault and not self._paused:
                self._paused = True
                text = f"the bot is refused and paused, nothing is dropped: {event.reason}"
                return Notice("bot_paused", text, (("reason", event.reason),))
            case events.BotReleased() if self._paused:
                self._paused = False
                text = f"the bot sends again after {event.seconds:.0f} s"
                return Notice("bot_resumed", text, (("seconds", round(event.seconds, 1)),))
            case events.Resumed(chat=chat) if event.alert:
                text = f"{whom(chat)} sends again after {event.seconds:.0f} s: the pause's time is over"
                return Notice("resumed", text, (("chat", chat or None), ("seconds", round(event.seconds, 1))))
            case events.Saturated():
                text = (
                    f"saturated: {event.outstanding} of {event.limit} messages are out, most for"
                    f" {', '.join(event.chats)}; past the limit other chats wait"
                )
                return Notice("saturated", text, (("chats", event.chats),))
            case events.BacklogOld():
                text = (
                    f"the oldest message waits for {event.seconds / 3600:.1f} h; the stream deletes after"
                    f" {event.limit_seconds / 3600:.1f} h"
                )
                return Notice("backlog_old", text, (("seconds", round(event.seconds)),))
            case events.RemovedUnseen():
                count = event.last_sequence - event.first_sequence + 1
                text = (
                    f"up to {count} messages were removed from the stream unseen, sequences"
                    f" {event.first_sequence} to {event.last_sequence}"
                )
                facts = (("first_sequence", event.first_sequence), ("last_sequence", event.last_sequence))
                return Notice("removed_unseen", text, facts)
            case events.TopicIgnored():
                chat, where = event.subject.chat, event.found or "the general chat"
                text = f"Telegram put a message for topic {event.asked} of chat {chat} into {where}"
                return Notice(
                    "topic_ignored", text, (("chat", chat), ("asked", event.asked), ("found", event.found))
                )
            case events.LedgerUnavailable():
                what = "what must not be doubled waits" if event.waits else "sends are not recorded"
                text = f"the ledger cannot be used, {what}: {event.reason}"
                return Notice("ledger_unavailable", text, (("reason", event.reason),))
            case events.ChatMigrated():
                text = f"group {event.old} is now supergroup {event.new}; its messages follow it"
                return Notice("chat_migrated", text, (("old", event.old), ("new", event.new)))
        return None

    def _of_drops(self, wall: float) -> Alert:
        drops = self._drops
        assert drops.first is not None
        assert drops.last is not None
        facts: dict[str, Any] = {
            "count": drops.count,
            "reasons": dict(drops.reasons),
            "chats": dict(drops.chats.most_common(NAMED_CHATS)),
            "chats_in_all": len(drops.chats),
            "not_stored": drops.lost,
            "first": _facts(drops.first),
            "last": _facts(drops.last),
        }
        text = _one(drops.first) if drops.count == 1 else _many(drops)
        return Alert(text, self._event("dropped", text, facts, wall), self._tell_chat)

    def _of_notice(self, notice: Notice, wall: float) -> Alert:
        event = self._event(notice.type, notice.text, dict(notice.facts), wall)
        return Alert(notice.text, event, self._tell_chat and notice.type not in NATS_ONLY)

    def _event(self, type_: str, text: str, facts: dict[str, Any], wall: float) -> bytes:
        return event_bytes(self._durable, type_, text, facts, wall)


def event_bytes(durable: str, type_: str, text: str, facts: Mapping[str, Any], wall: float) -> bytes:
    """An event for ``telegram.alerts``; docs/alerts.schema.json has its types and facts.

    Args:
        wall: Seconds since 1970.
    """
    at = datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="milliseconds")
    head = {"v": SCHEMA_VERSION, "type": type_, "at": at, "durable": durable, "text": text}
    return msgspec.json.encode({**head, **facts})


def _facts(drop: Drop) -> dict[str, Any]:
    return {
        "msg_id": drop.msg_id,
        "chat": drop.chat,
        "kind": drop.kind,
        "reason": drop.reason,
        "error_code": drop.error_code,
        "description": drop.description[:MAX_DESCRIPTION],
        "stream_seq": drop.stream_seq,
        "stored": drop.stored,
    }


def _one(drop: Drop) -> str:
    text = (
        f"dropped msg_id={drop.msg_id[:200]} error_code={drop.error_code}"
        f" desc={drop.description[:MAX_DESCRIPTION]} ({drop.reason}, chat {drop.chat or 'unknown'})"
    )
    return text if drop.stored else f"{text}; NOT STORED as a dead letter, stream sequence {drop.stream_seq}"


def _many(drops: _Gathered) -> str:
    assert drops.first is not None
    assert drops.last is not None
    reasons = ", ".join(f"{count} {reason}" for reason, count in drops.reasons.most_common())
    named = drops.chats.most_common(NAMED_CHATS)
    chats = ", ".join(f"{chat or 'unknown'} ({count})" for chat, count in named)
    more = len(drops.chats) - len(named)
    text = (
        f"dropped {drops.count} messages ({reasons}) for {len(drops.chats)} chats: {chats}"
        f"{f' and {more} more' if more else ''}; the last: msg_id={drops.last.msg_id[:200]}"
        f" error_code={drops.last.error_code} desc={drops.last.description[:MAX_DESCRIPTION]}"
    )
    if drops.lost:
        text += f"; {drops.lost} NOT STORED as dead letters"
    return text
