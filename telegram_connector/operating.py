"""What an operator changes from anywhere with NATS access: pauses. Works with and without a connector."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from telegram_connector import alerts, pauses
from telegram_connector.bridge import KeyValue, NatsClient
from telegram_connector.errors import BridgeError
from telegram_connector.pauses import Pause, Pauses, whom
from telegram_connector.settings import NatsSettings
from telegram_connector.status import READ_PAUSES, Status, read_answers
from telegram_connector.topology import STATE_BUCKET

_Told = tuple[str, str, dict[str, Any]]  # an alert: type, text, facts
TRIES = 10  # two operators at once: one of them reads again


@dataclass(frozen=True)
class Change:
    """What came of a command.

    Attributes:
        pauses: What is in force now.
        ended: The pauses that the command has ended, by chat; the bot's is that of ``""``.
        unreadable: What was wrong with the document that was there, "" for nothing; it was replaced.
        heard: The connectors that have read the change.
        unheard: Why none could be asked, "" otherwise.
        unannounced: Why no alert was published, "" when one was, or none is due.
    """

    pauses: Pauses
    ended: dict[str, Pause]
    unreadable: str
    heard: list[Status]
    unheard: str
    unannounced: str

    def heard_by(self) -> str:
        """Who has heard of it, in words."""
        if not self.heard:
            return "no connector has heard of it yet; whichever runs heeds it within 10 s, or from its start"
        active = sum(status.role == "active" for status in self.heard)
        return f"heard by {len(self.heard)} connector{'s' * (len(self.heard) > 1)}, {active} active"

    def doubts(self) -> Iterator[str]:
        """What did not go as it should, in words."""
        if self.unreadable:
            yield f"what was kept as paused could not be read and was replaced: {self.unreadable}"
        for what, why in (("connectors were not asked", self.unheard), ("no alert", self.unannounced)):
            if why:
                yield f"{what}: {why}"


class Switch:
    """Pauses and resumes.

    Args:
        wait_seconds: For how long connectors are waited for.
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
        self._bucket = KeyValue(client, STATE_BUCKET)
        self._key = pauses.key(settings.stream, settings.durable)

    def pause(self, chat: str, seconds: float | None, reason: str) -> Change:
        """Pause a chat, or with ``""`` the bot; a pause that it has is replaced.

        Args:
            seconds: For how long; None for until resumed.
            reason: Why, in the operator's words.

        Raises:
            ValueError: Too many chats are paused one by one.
            BridgeError: It was not written, or nobody said that it was; doing it again is safe.
        """
        now = self._wall()
        pause = Pause(now, None if seconds is None else now + seconds, reason)
        how_long = "until resumed" if seconds is None else f"for {seconds:.0f} s"
        text = f"{whom(chat)} was paused by an operator {how_long}{': ' if reason else ''}{reason}"
        facts: dict[str, Any] = {"chat": chat or None, "seconds": seconds, "reason": reason}
        return self._carry_out(lambda known: known.having(chat, pause), lambda _: [("paused", text, facts)])

    def resume(self, chat: str | None) -> Change:
        """Resume a chat, with ``""`` the bot, with None everything; nothing happens where nothing is paused.

        Raises:
            BridgeError: As of `pause`.
        """

        def told(ended: dict[str, Pause]) -> list[_Told]:
            now = self._wall()
            return [
                (
                    "resumed",
                    f"{whom(name)} was resumed by an operator after {now - pause.since:.0f} s",
                    {"chat": name or None, "seconds": round(now - pause.since, 1)},
                )
                for name, pause in ended.items()
            ]

        return self._carry_out(lambda known: Pauses() if chat is None else known.without(chat), told)

    def _carry_out(
        self,
        edit: Callable[[Pauses], Pauses],
        told: Callable[[dict[str, Pause]], list[_Told]],
    ) -> Change:
        before, after, unreadable = self._write(edit)
        ended = {chat: pause for chat, pause in before.all().items() if chat not in after.all()}
        heard, unheard = self._tell_connectors()
        unannounced = ""
        for type_, text, facts in told(ended):
            unannounced = unannounced or self._announce(type_, text, facts)
        return Change(after, ended, unreadable, heard, unheard, unannounced)

    def _write(self, edit: Callable[[Pauses], Pauses]) -> tuple[Pauses, Pauses, str]:
        """Change the document by compare and set: (before, after, what was wrong with it)."""
        for _ in range(TRIES):
            entry = self._bucket.get(self._key)
            document = entry.value if entry else b""
            unreadable = ""
            try:
                before = pauses.read(document).current(self._wall()) if document else Pauses()
            except ValueError as error:
                before, unreadable = Pauses(), str(error)
            after = edit(before)
            if after == before and not unreadable:
                return before, after, ""
            value = pauses.write(after)
            if entry is None:
                written = self._bucket.create(self._key, value)
            else:
                written = self._bucket.update(self._key, value, entry.revision)
            if written is not None:
                return before, after, unreadable
        raise BridgeError("others are changing the pauses all the time; try again")

    def _tell_connectors(self) -> tuple[list[Status], str]:
        subject = f"{self._settings.status_subject}.{self._settings.durable}"
        try:
            answers = self._client.gather(subject, READ_PAUSES, self._wait_seconds)
        except BridgeError as error:
            return [], str(error)
        return read_answers(answers, self._settings.stream)[0], ""

    def _announce(self, type_: str, text: str, facts: dict[str, Any]) -> str:
        settings = self._settings
        event = alerts.event_bytes(settings.durable, type_, text, facts, self._wall())
        try:
            self._client.announce_checked(settings.alert_subject, event)
        except BridgeError as error:
            return str(error)
        return ""
