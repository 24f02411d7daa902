"""The copy of a message that was not delivered: how it is written, read, and made a message again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from telegram_connector.clock import timestamp
from telegram_connector.delivery import DeadLetter, Delivery
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import MSG_ID_HEADER, decode
from telegram_connector.errors import EnvelopeError
from telegram_connector.marks import Change
from telegram_connector.markup import plain

MAX_HEADER_LENGTH = 500

REASON = "Tg-Dead-Reason"
ERROR_CODE = "Tg-Error-Code"
DESCRIPTION = "Tg-Description"
STREAM_SEQ = "Tg-Stream-Seq"
ATTEMPTS = "Tg-Attempts"
FIRST_SEEN = "Tg-First-Seen"
BODY_OMITTED = "Tg-Body-Omitted"
ORIGINAL = "Tg-Orig-"
RESENT_OF = "Tg-Resent-Of"

_ABOUT_ITS_DEATH = {
    name.lower()
    for name in (REASON, ERROR_CODE, DESCRIPTION, STREAM_SEQ, ATTEMPTS, FIRST_SEEN, BODY_OMITTED, RESENT_OF)
}


def dead_letter(delivery: Delivery, terminal: Terminal, attempts: int) -> DeadLetter:
    """The dead letter of `delivery`: its bytes, and headers that say what became of it.

    The original headers are kept, ``Nats-*`` renamed to ``Tg-Orig-*`` since JetStream would act on them; the
    ``Nats-Msg-Id`` is one by which storing it again changes nothing.

    Args:
        attempts: Failed attempts of its own.
    """
    headers = {
        (ORIGINAL + name[len("Nats-") :] if name.lower().startswith("nats-") else name): value
        for name, value in delivery.headers.items()
    }
    headers |= {
        REASON: terminal.reason,
        ERROR_CODE: str(terminal.error_code),
        DESCRIPTION: _one_line(terminal.description),
        STREAM_SEQ: str(delivery.id.sequence),
        ATTEMPTS: str(attempts),
        FIRST_SEEN: timestamp(delivery.id.stored_at_ns / 1e9),
        "Nats-Msg-Id": f"{delivery.id.stream}:{delivery.id.sequence}:{delivery.id.stored_at_ns}",
    }
    return DeadLetter(delivery.payload, headers)


def fitting(letter: DeadLetter, max_bytes: int) -> DeadLetter:
    """The letter, without its body where a server that takes `max_bytes` would refuse it.

    A message that just fits leaves no room for the headers. Its body stays in the outbound stream, under
    `Tg-Stream-Seq`, until that stream's max_age.
    """
    if size(letter.headers, letter.payload) <= max_bytes:
        return letter
    return DeadLetter(b"", {**letter.headers, BODY_OMITTED: str(len(letter.payload))})


def size(headers: Mapping[str, str], payload: bytes) -> int:
    """Bytes that a message takes of what a server allows."""
    lines = sum(len(name.encode()) + len(value.encode()) + 4 for name, value in headers.items())
    return lines + len("NATS/1.0\r\n\r\n") + len(payload)


@dataclass(frozen=True)
class Letter:
    """A dead letter as it is stored.

    Attributes:
        seq: Its sequence in the stream of dead letters.
        stored_at: When it was stored, in the server's words: with `seq` what identifies it for good.
        headers: The publisher's, and those that say what became of it.
        payload: The publisher's bytes.
    """

    seq: int
    stored_at: str
    headers: Mapping[str, str]
    payload: bytes

    @property
    def dead_at(self) -> datetime:
        """When it was stored."""
        return msgspec.convert(self.stored_at, datetime)

    @property
    def reason(self) -> str:
        """Why it was not delivered; "" where nobody says."""
        return self.headers.get(REASON, "")

    @property
    def description(self) -> str:
        """Telegram's words, or ours."""
        return self.headers.get(DESCRIPTION, "")

    @property
    def error_code(self) -> int | None:
        return _number(self.headers.get(ERROR_CODE))

    @property
    def attempts(self) -> int | None:
        return _number(self.headers.get(ATTEMPTS))

    @property
    def stream_seq(self) -> int | None:
        """The original's sequence in the outbound stream."""
        return _number(self.headers.get(STREAM_SEQ))

    @property
    def original(self) -> tuple[int, int] | None:
        """The original's sequence and store time (nanoseconds since 1970) in the outbound stream."""
        _, sequence, stored_at = ("::" + self.headers.get(MSG_ID_HEADER, "")).rsplit(":", 2)
        found = _number(sequence), _number(stored_at)
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    @property
    def body_omitted(self) -> bool:
        """Whether its body did not fit, and is to be had from the outbound stream only."""
        return BODY_OMITTED in self.headers

    @property
    def msg_id(self) -> str | None:
        """The publisher's id, from the header where the body has none."""
        return self._said("msg_id") or self.headers.get(ORIGINAL + "Msg-Id")

    @property
    def chat(self) -> str | None:
        """The chat as the publisher named it; None for the default one, or where it cannot be read."""
        return self._said("chat")

    @property
    def kind(self) -> str | None:
        return self._said("kind")

    @property
    def text(self) -> str | None:
        """What it says; None where that cannot be read."""
        return self._said("text")

    def _said(self, name: str) -> str | None:
        value = self._fields.get(name)
        return value if isinstance(value, str) else None

    @cached_property
    def _fields(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.payload, type=dict[str, Any])
        except (msgspec.DecodeError, ValueError, RecursionError):
            return {}


@dataclass(frozen=True)
class Copy:
    """A dead letter made a message again."""

    msg_id: str
    headers: Mapping[str, str]
    payload: bytes


def copy(letter: Letter, n: int, change: Change) -> Copy:
    """The `n`-th copy of what `letter` was, under an id of its own: ``<old>.r<n>``.

    The stream remembers the old id and would take a copy under it for the original. What the publisher said
    stays as it is, fields that we do not know included, but for `change` and for ``expires_at``, which has
    passed or soon will. In another chat, topic and message replied to have no meaning and are left out. Of
    the headers the publisher's own stay, and what JetStream was told about the original goes.

    Raises:
        EnvelopeError: With that change, too, it is none that a connector would take.
    """
    try:
        fields = msgspec.json.decode(letter.payload, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError):
        decode(letter.payload)  # says what is wrong in the words that the connector had for it
        raise EnvelopeError("", "not a JSON object") from None
    if letter.msg_id is None:
        raise EnvelopeError("msg_id", "missing")
    msg_id = f"{letter.msg_id}.r{n}"
    fields["msg_id"] = _raw(msg_id)
    fields.pop("expires_at", None)
    if change.chat is not None:
        fields["chat"] = _raw(change.chat)
        if change.chat != letter.chat:
            for name in ("message_thread_id", "reply_to_message_id", "reply_to"):
                fields.pop(name, None)
    if change.plain:
        fields.pop("parse_mode", None)
        if letter.text is not None:
            fields["text"] = _raw(without_markup(letter.text, letter._said("parse_mode")))
    payload = msgspec.json.encode(fields)
    decode(payload)
    headers = {
        name: value
        for name, value in letter.headers.items()
        if not name.lower().startswith(("nats-", ORIGINAL.lower())) and name.lower() not in _ABOUT_ITS_DEATH
    }
    return Copy(msg_id, {**headers, MSG_ID_HEADER: msg_id, RESENT_OF: str(letter.seq)}, payload)


def without_markup(text: str, parse_mode: str | None) -> str:
    """What to say instead of `text` when no parse mode goes with it; the relay's fall-back says the same."""
    return plain(text, parse_mode)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _one_line(text: str) -> str:
    """A header's value ends at a line break, and spaces at its ends are lost."""
    return " ".join(text.split())[:MAX_HEADER_LENGTH]
