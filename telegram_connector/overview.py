"""How things stand, as seen from anywhere with NATS access: JetStream's figures and the connectors' answers.

Only looks. What may not be asked, or is not there, is named and left out; the rest is shown.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import msgspec

from telegram_connector import pauses as documents
from telegram_connector.bridge import NatsClient
from telegram_connector.bridge.census import Census
from telegram_connector.bridge.client import AT_ONCE
from telegram_connector.bridge.consumer import nanoseconds
from telegram_connector.bridge.link import PermissionDenied
from telegram_connector.clock import timestamp
from telegram_connector.errors import NO_MESSAGE_FOUND, ApiError
from telegram_connector.pauses import Pause, Pauses
from telegram_connector.settings import NatsSettings
from telegram_connector.status import Status, read_answers
from telegram_connector.topology import STATE_BUCKET

VERSION = 1


class Queue(msgspec.Struct, frozen=True):
    """How many messages, and since when the oldest of them is stored; None where that is not known."""

    count: int
    oldest_at: str | None = None
    age_seconds: float | None = None


class DeadLetters(msgspec.Struct, frozen=True):
    """How many there are, and of the newest `read` how many by reason; None where they may not be read."""

    count: int
    read: int
    by_reason: dict[str, int] | None


class Paused(msgspec.Struct, frozen=True):
    """A pause in force; `chat` is None for the bot, `ends_in_seconds` for until resumed."""

    chat: str | None
    since: str
    ends_in_seconds: float | None
    reason: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `status` shows; docs/operations.md describes the fields."""

    v: int = VERSION
    at: str
    stream: str
    durable: str
    backlog: Queue | None
    outstanding: Queue | None
    redelivered: int | None
    pulling: int | None
    pinned: bool | None
    dead_letters: DeadLetters | None
    ambiguous: int | None
    last_sent_at: str | None
    pauses: list[Paused] | None
    connectors: list[Status]
    unknown: list[str]


class Observatory:
    """Looks again and again over one connection.

    Args:
        wait_seconds: For how long answers of connectors are gathered.
        wall: Seconds since 1970.
    """

    def __init__(
        self,
        client: NatsClient,
        settings: NatsSettings,
        wait_seconds: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._settings = settings
        self._wait_seconds = wait_seconds
        self._wall = wall
        self._unknown: list[str] = []
        self._census = Census(settings.dead_stream, AT_ONCE)

    def look(self) -> Overview:
        """How things stand now.

        Raises:
            BridgeError: NATS does not answer.
        """
        self._unknown = []
        settings = self._settings
        connectors = self._ask_connectors()
        consumer = self._ask("backlog", f"CONSUMER.INFO.{settings.stream}.{settings.durable}") or {}
        groups = consumer.get("priority_groups")
        dead_letters = self._dead_letters()
        return Overview(
            at=timestamp(self._wall()),
            stream=settings.stream,
            durable=settings.durable,
            backlog=self._queue(consumer, "num_pending", "delivered"),
            outstanding=self._queue(consumer, "num_ack_pending", "ack_floor"),
            redelivered=consumer.get("num_redelivered"),
            pulling=consumer.get("num_waiting"),
            pinned=any(group.get("pinned_client_id") for group in groups) if groups else None,
            dead_letters=dead_letters,
            ambiguous=self._ambiguous(dead_letters),
            last_sent_at=max(
                (c.tally.last_sent_at for c in connectors if c.tally.last_sent_at), default=None
            ),
            pauses=self._pauses(),
            connectors=connectors,
            unknown=self._unknown,
        )

    # What is asked. A refusal is an answer; that NATS is silent or gone ends the look.

    def _ask(self, what: str, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        try:
            return self._client.api(subject, body)
        except PermissionDenied as denied:
            self._unknown.append(f"{what}: NATS permission missing for {denied.subject}")
        except ApiError as error:
            if error.err_code != NO_MESSAGE_FOUND:
                self._unknown.append(f"{what}: {error}")
        return None

    def _ask_connectors(self) -> list[Status]:
        subject = f"{self._settings.status_subject}.{self._settings.durable}"
        try:
            answers = self._client.gather(subject, b"", self._wait_seconds)
        except PermissionDenied as denied:
            self._unknown.append(f"connectors: NATS permission missing for {denied.subject}")
            return []
        connectors, strange = read_answers(answers, self._settings.stream)
        if strange:
            self._unknown.append(f"connectors: {strange} answers on {subject} are no status")
        return sorted(connectors, key=lambda c: (c.role, c.host, c.pid, c.id))

    def _queue(self, consumer: dict[str, Any], count: str, before: str) -> Queue | None:
        """So many messages, the oldest of which is the next after the consumer's position `before`."""
        if not consumer:
            return None
        if not consumer.get(count):
            return Queue(0)
        oldest = self._ask(
            "age",
            f"STREAM.MSG.GET.{self._settings.stream}",
            {
                "seq": int(consumer[before]["stream_seq"]) + 1,
                "next_by_subj": consumer["config"].get("filter_subject") or ">",
            },
        )
        if oldest is None:
            return Queue(int(consumer[count]))
        stored = nanoseconds(str(oldest["message"]["time"])) / 1e9
        return Queue(int(consumer[count]), timestamp(stored), round(max(0.0, self._wall() - stored), 1))

    def _pauses(self) -> list[Paused] | None:
        settings, wall = self._settings, self._wall()
        subject = f"$KV.{STATE_BUCKET}.{documents.key(settings.stream, settings.durable)}"
        before = len(self._unknown)
        found = self._ask("pauses", f"STREAM.MSG.GET.KV_{STATE_BUCKET}", {"last_by_subj": subject})
        if found is None:
            return None if len(self._unknown) > before else []
        document = base64.b64decode(found["message"].get("data", ""))
        try:
            pauses = documents.read(document) if document else Pauses()
        except ValueError as error:
            self._unknown.append(f"pauses: the document in bucket {STATE_BUCKET} cannot be read: {error}")
            return None
        return [_paused(chat, pause, wall) for chat, pause in pauses.current(wall).all().items()]

    # Dead letters

    def _dead_letters(self) -> DeadLetters | None:
        info = self._ask("dead letters", f"STREAM.INFO.{self._settings.dead_stream}")
        if info is None:
            return None
        count = int(info["state"]["messages"])
        try:
            reasons = self._client.over(lambda link: self._census.reasons(link, info))
        except PermissionDenied as denied:
            self._unknown.append(f"reasons: NATS permission missing for {denied.subject}")
            return DeadLetters(count, 0, None)
        return DeadLetters(count, reasons.total(), dict(reasons.most_common()))

    def _ambiguous(self, dead_letters: DeadLetters | None) -> int | None:
        """How many of the dead letters that were read say that nobody knows, and are not resolved."""
        if dead_letters is None or dead_letters.by_reason is None:
            return None
        try:
            return self._client.over(self._census.in_doubt)
        except PermissionDenied as denied:
            self._unknown.append(f"ambiguous: NATS permission missing for {denied.subject}")
            return None


def _paused(chat: str, pause: Pause, wall: float) -> Paused:
    left = None if pause.until is None else round(pause.until - wall, 1)
    return Paused(chat or None, timestamp(pause.since), left, pause.reason)
