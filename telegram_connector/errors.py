"""The exceptions of telegram_connector.

::

    TelegramConnectorError
    ├── SettingsError       a setting is missing or wrong; lists every fault
    ├── EnvelopeError       an envelope cannot be read; names the field
    │   └── TextRefused     Telegram would refuse its text; its words, and the place
    ├── MarkupError         Telegram would refuse a text; says so in its words
    ├── ProjectionError     the projection was given something wrong; lists every fault
    ├── BridgeError         NATS or JetStream
    │   ├── Disconnected    no connection now; nothing was done
    │   ├── Unanswered      no answer in time; it may have been done
    │   ├── ApiError        JetStream said no, with its code
    │   │   └── RevisionMismatch  somebody else wrote the key first
    │   └── PublishFailed   an envelope was not published; says whether it may be stored all the same
    ├── LedgerError         a record of the ledger cannot be read, or cannot become what was asked
    └── RelayFailed         a thread of the relay died; its cause is chained
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# JetStream's own codes that are looked at (`ApiError.err_code`; read in nats-server's errors.json).
CONSUMER_NOT_FOUND = 10014
NO_MESSAGE_FOUND = 10037
STREAM_NOT_FOUND = 10059
SUBJECTS_OVERLAP = 10065
WRONG_LAST_SEQUENCE = 10071

_LONGEST_WORDS = 300  # of what a fault quotes


class TelegramConnectorError(Exception):
    """Base of everything this package raises on purpose."""


class SettingsError(TelegramConnectorError):
    """Raised when settings are missing or wrong.

    Attributes:
        faults: One sentence per fault, each beginning with the variable's name. No value is quoted, so
            that a secret cannot leak through it.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


class EnvelopeError(TelegramConnectorError):
    """Raised when bytes are not a valid envelope.

    Attributes:
        field: The field at fault, or ``""`` where the whole body is (not JSON, not an object).
        reason: What is wrong with it, without the value.
    """

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}" if field else reason)

    def __reduce__(self) -> tuple[Any, ...]:
        # Results of worker processes are pickled, exceptions too.
        return type(self), (self.field, self.reason)


class TextRefused(EnvelopeError):
    """Raised when Telegram would refuse an envelope's text, before it is published.

    Attributes:
        description: Telegram's words, which may quote a tag of the text.
        byte_offset: Where the fault is, in bytes of UTF-8; None where it is the text as a whole.
        position: The same in characters.
        figures: Counts that belong to it, in words; may be empty.
    """

    def __init__(
        self,
        description: str,
        byte_offset: int | None = None,
        position: int | None = None,
        figures: str = "",
    ) -> None:
        self.description = description
        self.byte_offset = byte_offset
        self.position = position
        self.figures = figures
        words = description.removeprefix("Bad Request: ")
        words = words if len(words) <= _LONGEST_WORDS else words[: _LONGEST_WORDS - 1] + "…"
        if figures:
            words += f": {figures}"
        if byte_offset is not None and f"byte offset {byte_offset}" not in words:
            words += f" (at byte offset {byte_offset})"
        super().__init__("text", words)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.description, self.byte_offset, self.position, self.figures)


class MarkupError(TelegramConnectorError):
    """Raised when Telegram would refuse a text, for its markup, its length or because nothing is visible.

    Attributes:
        description: Telegram's words, which may quote a tag of the text.
        byte_offset: Where a fault of markup is, in bytes of UTF-8. Telegram does not always name it.
        position: Where the fault is, in characters; None where it is the text as a whole.
    """

    def __init__(self, description: str, byte_offset: int | None = None, position: int | None = None) -> None:
        self.description = description
        self.byte_offset = byte_offset
        self.position = position
        super().__init__(description)


class ProjectionError(TelegramConnectorError):
    """Raised when a policy, or what the projection is asked about, is not well made.

    Attributes:
        record: What is at fault, e.g. ``"Policy"``.
        faults: One per field, each beginning with the field's name, without its value.
    """

    def __init__(self, record: str, faults: Sequence[str]) -> None:
        self.record = record
        self.faults = tuple(faults)
        super().__init__(f"{record}: {'; '.join(self.faults)}")


class BridgeError(TelegramConnectorError):
    """Base of what goes wrong between us and NATS."""


class Disconnected(BridgeError):
    """Raised when there is no connection to NATS; nothing was asked of the server."""


class Unanswered(BridgeError):
    """Raised when the server did not answer in time; what was asked may have been done."""


class ApiError(BridgeError):
    """Raised when JetStream refuses a request.

    Attributes:
        code: HTTP-like status, e.g. 404.
        err_code: JetStream's own code, e.g. 10014 (consumer not found).
        description: JetStream's words.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        self.code = code
        self.err_code = err_code
        self.description = description
        super().__init__(f"{description} ({code}/{err_code})")


class RevisionMismatch(ApiError):
    """Raised when a key has another revision than the one that was to be replaced."""


class LedgerError(TelegramConnectorError):
    """Raised when a record of the ledger cannot be read, or cannot become what was asked."""


class PublishFailed(BridgeError):
    """Raised when an envelope was not published, or nobody knows whether it was.

    Attributes:
        msg_id: The envelope's.
        reason: What happened, with the variable to look at where there is one; no credentials.
        maybe_stored: Whether it may be in the stream all the same. Publishing it again with the same `msg_id`
            is safe within the stream's duplicate window, 5 minutes as provisioned; after that it may be
            stored, and shown, twice.
    """

    def __init__(self, msg_id: str, reason: str, maybe_stored: bool) -> None:
        self.msg_id = msg_id
        self.reason = reason
        self.maybe_stored = maybe_stored
        known = "may be stored or not, nobody said" if maybe_stored else "is not stored"
        super().__init__(f"{msg_id[:200]} {known}: {reason}")

    def __reduce__(self) -> tuple[type[PublishFailed], tuple[str, str, bool]]:
        # Results of worker processes are pickled, exceptions too.
        return type(self), (self.msg_id, self.reason, self.maybe_stored)


class RelayFailed(TelegramConnectorError):
    """Raised by ``Relay.wait`` and ``Relay.stop`` when a thread of the relay died of a bug."""
