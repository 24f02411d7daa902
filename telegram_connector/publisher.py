"""Publishing from a synchronous program: checked before, confirmed after, waiting within bounds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from telegram_connector.bridge import THREAD_NAME, Outlet, PublishAck
from telegram_connector.envelope import MSG_ID_HEADER, TelegramOutbound, encode
from telegram_connector.errors import EnvelopeError, PublishFailed, SettingsError
from telegram_connector.settings import NatsSettings

__all__ = ["THREAD_NAME", "Check", "PublishAck", "Publisher", "fits"]

TIMEOUT_SECONDS = 10.0
# All tries of one call share an id. They lie within the duplicate window: 5 minutes as provisioned, 2 minutes
# where a stream was made with the server's default.
MAX_TIMEOUT_SECONDS = 100.0
CLOSE_SECONDS = 2.0

MAX_TEXT_BYTES = 32_768  # of the raw text; more is "text is too long"
MAX_CODE_POINTS = 4096  # of what is shown; more is "message is too long"
_BLANK = "".join(map(chr, range(0x21)))
# What Telegram takes out of a text, all or some of it, before it counts.
_UNCOUNTED = dict.fromkeys((0x0D, 0x200E, 0x200F, *range(0x2028, 0x202F), 0x030A, 0x0333, 0x033F))

Check = Callable[[TelegramOutbound], None]
Progress = Callable[[TelegramOutbound, PublishAck], None]


def fits(envelope: TelegramOutbound) -> None:
    """Refuse what Telegram surely refuses for its length, in Telegram's words; knows nothing of markup.

    Raises:
        EnvelopeError: The text is empty or too long.
    """
    size = len(envelope.text.encode(errors="replace"))
    if size > MAX_TEXT_BYTES:
        raise EnvelopeError("text", f"text is too long: {size} bytes of {MAX_TEXT_BYTES}")
    if not envelope.text.strip(_BLANK):
        raise EnvelopeError("text", "text must be non-empty: it is white space")
    if (envelope.parse_mode or "none").lower() == "none":
        shown = len(envelope.text.translate(_UNCOUNTED).strip())
        if shown > MAX_CODE_POINTS:
            raise EnvelopeError("text", f"message is too long: {shown} characters of {MAX_CODE_POINTS}")


class Publisher:
    """Publishes envelopes to the outbound stream, from any thread.

    It connects when the first envelope is published, and anew after the connection was lost. In a forked
    child it connects for itself; the parent's connection is the parent's. A program that exits without
    closing it is not held up. It reads no environment and sets up no logging.

    Args:
        settings: Where to publish, and as whom.
        check: Raises `EnvelopeError` for what is not to be published.
        name: What the server calls the connection.

    Raises:
        SettingsError: No server, or a subject with a wildcard.
    """

    def __init__(
        self, settings: NatsSettings, *, check: Check = fits, name: str = "telegram_connector publisher"
    ) -> None:
        if not settings.nats_servers:
            raise SettingsError(["NATS_URL is not set"])
        if {"*", ">"} & set(settings.subject.split(".")):
            raise SettingsError(["TG_SUBJECT has a wildcard: set it to the one subject to publish to"])
        self._settings = settings
        self._check = check
        self._name = name
        self._closed = False
        # One per process that has published: a parent's stay here untouched, its threads and locks are not
        # ours. Kept by process and not by a hook of the fork's, since not every host that forks runs those.
        self._outlets: dict[int, Outlet] = {}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value among the settings."""
        return self._settings.secrets

    def publish(
        self,
        envelope: TelegramOutbound,
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> PublishAck:
        """Publish one envelope and wait until the stream has it.

        Within the budget a broker that is away is waited for, and an answer that does not come is asked for
        again under the same id, which stores nothing twice. Publishing the same envelope again after a
        failure is safe within the duplicate window (5 minutes as provisioned), from another process too.
        After that the stream has forgotten the id: what `maybe_stored` had left open may then be doubled.

        Args:
            envelope: What to say.
            timeout_seconds: Above 0, at most 100.
            headers: More headers, e.g. ``traceparent``; none of NATS's own.

        Returns:
            The sequence in the stream, and whether the stream had the `msg_id` already: from before, or from
            an earlier try of this call whose answer was lost.

        Raises:
            EnvelopeError: It is no envelope, does not pass the check, or is larger than the server takes;
                nothing was published.
            PublishFailed: It was not stored, or nobody knows (`maybe_stored`).
            ValueError: A header or the timeout is not possible.
        """
        return self._send(envelope, self._checked(envelope), timeout_seconds, headers)

    def publish_many(
        self,
        envelopes: Iterable[TelegramOutbound],
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> list[PublishAck]:
        """Publish envelopes in their order, each after the one before it is stored.

        All are checked before the first is published. The first that fails ends it; publishing all of them
        again is safe within the duplicate window.

        Args:
            envelopes: What to say.
            timeout_seconds: For each of them.
            headers: As for `publish`, on each of them.
            progress: Called with each envelope and its receipt, once it is stored.

        Raises:
            EnvelopeError: As for `publish`; nothing was published, unless it is only the server's limit.
            PublishFailed: Of the first that failed; it names the `msg_id`, and none after it was published.
            ValueError: A header or the timeout is not possible.
        """
        acks = []
        for envelope, payload in [(e, self._checked(e)) for e in envelopes]:
            ack = self._send(envelope, payload, timeout_seconds, headers)
            acks.append(ack)
            if progress is not None:
                progress(envelope, ack)
        return acks

    def start(self) -> None:
        """Start this process's thread now; connecting waits for the first publish.

        `publish` does it otherwise. But Python 3.12 starts no threads while it exits: a program that may
        publish first in an exit handler calls this before.

        Raises:
            Disconnected: The publisher is closed, or no thread can be started.
        """
        self._outlet().start()

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Close this process's connection; who waits for a receipt gets `PublishFailed`. Idempotent."""
        self._closed = True
        if outlet := self._outlets.get(os.getpid()):
            outlet.close(timeout_seconds)

    def _checked(self, envelope: TelegramOutbound) -> bytes:
        payload = encode(envelope)
        if not _is_header_value(envelope.msg_id):
            raise EnvelopeError("msg_id", "control characters or outer white space, which no header carries")
        self._check(envelope)
        return payload

    def _send(
        self,
        envelope: TelegramOutbound,
        payload: bytes,
        timeout_seconds: float,
        headers: Mapping[str, str] | None,
    ) -> PublishAck:
        if not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
            raise ValueError(f"timeout_seconds must be above 0 and at most {MAX_TIMEOUT_SECONDS:g}")
        if self._closed:
            raise PublishFailed(envelope.msg_id, "the publisher is closed", maybe_stored=False)
        with_id = {**_sound(headers or {}), MSG_ID_HEADER: envelope.msg_id}
        return self._outlet().publish(self._settings.subject, payload, with_id, timeout_seconds)

    def _outlet(self) -> Outlet:
        process = os.getpid()
        if process not in self._outlets:
            # Of two threads that come here together one wins; the other's was never started.
            self._outlets.setdefault(process, Outlet(self._settings, self._name))
        return self._outlets[process]

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_header_value(text: str) -> bool:
    return text == text.strip() and not re.search(r"[\x00-\x1f\x7f]", text)


def _sound(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or name.lower().startswith("nats-"):
            raise ValueError(f"header {name!r}: no header's name, or one of NATS's own")
        if not _is_header_value(value):
            raise ValueError(f"header {name!r}: control characters or outer white space in its value")
    return headers
