"""The copy of a message that was not delivered: pure."""

from __future__ import annotations

from datetime import datetime, timezone

from telegram_connector.delivery import DeadLetter, Delivery
from telegram_connector.disposition import Terminal

MAX_HEADER_LENGTH = 500

REASON = "Tg-Dead-Reason"
ERROR_CODE = "Tg-Error-Code"
DESCRIPTION = "Tg-Description"
STREAM_SEQ = "Tg-Stream-Seq"
ATTEMPTS = "Tg-Attempts"
FIRST_SEEN = "Tg-First-Seen"
BODY_OMITTED = "Tg-Body-Omitted"
ORIGINAL = "Tg-Orig-"


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
    first_seen = datetime.fromtimestamp(delivery.id.stored_at_ns / 1e9, timezone.utc)
    headers |= {
        REASON: terminal.reason,
        ERROR_CODE: str(terminal.error_code),
        DESCRIPTION: _one_line(terminal.description),
        STREAM_SEQ: str(delivery.id.sequence),
        ATTEMPTS: str(attempts),
        FIRST_SEEN: first_seen.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "Nats-Msg-Id": f"{delivery.id.stream}:{delivery.id.sequence}:{delivery.id.stored_at_ns}",
    }
    return DeadLetter(delivery.payload, headers)


def fitting(letter: DeadLetter, max_bytes: int) -> DeadLetter:
    """The letter, without its body where a server that takes `max_bytes` would refuse it.

    A message that just fits leaves no room for the headers. Its body stays in the outbound stream, under
    `Tg-Stream-Seq`, until that stream's max_age.
    """
    headers = sum(len(name.encode()) + len(value.encode()) + 4 for name, value in letter.headers.items())
    if headers + len("NATS/1.0\r\n\r\n") + len(letter.payload) <= max_bytes:
        return letter
    return DeadLetter(b"", {**letter.headers, BODY_OMITTED: str(len(letter.payload))})


def _one_line(text: str) -> str:
    """A header's value ends at a line break, and spaces at its ends are lost."""
    return " ".join(text.split())[:MAX_HEADER_LENGTH]
