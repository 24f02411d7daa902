"""What a publisher wants said: the wire type, its JSON, and the Bot API request it becomes.

The text is the publisher's and is relayed as it came: never escaped, trimmed or cut, and never quoted in an
error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from telegram_connector.errors import EnvelopeError

MSG_ID_HEADER = "Nats-Msg-Id"

_Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_INT64 = range(-(2**63), 2**63)


class TelegramOutbound(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One message to be sent. Fields that are not listed here are ignored on the wire.

    Attributes:
        msg_id: Idempotency key, equal to the ``Nats-Msg-Id`` header.
        chat: Decimal chat id or ``@name``; None for the connector's default chat.
        text: What to say, formatted by the publisher.
        parse_mode: ``"HTML"``, ``"MarkdownV2"`` or None, passed on as it is.
        kind: ``"info"``, ``"alert"`` or ``"trade"``: advisory, an attribute of logs.
        message_thread_id: Topic within the chat.
        reply_to_message_id: Telegram's id of the message replied to.
        reply_to: The same as an internal ``msg_id``, to be looked up among the links.
        allow_sending_without_reply: Whether to send although that message is gone.
        disable_notification: Whether to send silently.
        link_preview: False for no preview of links.
        on_ambiguous: ``"retry"`` or ``"park"`` where it is not known whether Telegram sent it.
        route_id: Set by the projection, for ledger and links.
        from_member: Set by the projection, for ledger and links.
        expires_at: RFC 3339 with an offset; after that it is not sent any more.
        group: The ``msg_id`` of the whole, where this is one part of a text that was split.
        part: Which part, from 1.
        parts: How many there are.
        visibility_decision_id: Set by the projection: the decision that let this leave.
    """

    msg_id: str
    chat: str | None = None
    text: str
    parse_mode: str | None = None
    kind: str | None = None
    message_thread_id: _Id | None = None
    reply_to_message_id: _Id | None = None
    reply_to: str | None = None
    allow_sending_without_reply: bool | None = None
    disable_notification: bool | None = None
    link_preview: bool | None = None
    on_ambiguous: str | None = None
    route_id: str | None = None
    from_member: str | None = None
    expires_at: str | None = None
    group: str | None = None
    part: _Id | None = None
    parts: _Id | None = None
    visibility_decision_id: str | None = None


_decoder = msgspec.json.Decoder(TelegramOutbound)
_encoder = msgspec.json.Encoder()


def decode(payload: bytes) -> TelegramOutbound:
    """Read an envelope, strictly: nothing is coerced.

    Raises:
        EnvelopeError: It cannot be read; the field at fault is named, no value is.
    """
    try:
        envelope = _decoder.decode(payload)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    except RecursionError:
        raise EnvelopeError("", "nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:  # UnicodeDecodeError too
        raise EnvelopeError("", f"not JSON: {_flaw(error)}") from None
    _check(envelope)
    return envelope


def encode(envelope: TelegramOutbound) -> bytes:
    """Write an envelope; fields that are None are left out.

    Raises:
        EnvelopeError: ``decode`` would refuse the result.
    """
    try:
        payload = _encoder.encode(envelope)
    except UnicodeEncodeError:
        raise EnvelopeError("", "half of a surrogate pair, which is no text") from None
    except (TypeError, ValueError, OverflowError):
        raise EnvelopeError("", "a value that JSON cannot carry") from None
    decode(payload)
    return payload


def request_body(envelope: TelegramOutbound, chat_id: str) -> bytes:
    """Return the JSON body of ``sendMessage``.

    What is absent stays absent: the Bot API reads a JSON null as the word "null". ``reply_to`` is not looked
    up here.

    Args:
        envelope: What to send.
        chat_id: Decimal id or ``@name`` of the chat to send it to.
    """
    body: dict[str, Any] = {
        "chat_id": chat_id if chat_id.startswith("@") else int(chat_id),
        "text": envelope.text,
    }
    for name in ("parse_mode", "message_thread_id", "disable_notification"):
        value = getattr(envelope, name)
        if value is not None:
            body[name] = value
    if envelope.reply_to_message_id is not None:
        reply: dict[str, Any] = {"message_id": envelope.reply_to_message_id}
        if envelope.allow_sending_without_reply is not None:
            reply["allow_sending_without_reply"] = envelope.allow_sending_without_reply
        body["reply_parameters"] = reply
    if envelope.link_preview is False:
        body["link_preview_options"] = {"is_disabled": True}
    return _encoder.encode(body)


def expiry(envelope: TelegramOutbound) -> float | None:
    """Return when the envelope expires, in seconds since 1970; None for never."""
    if envelope.expires_at is None:
        return None
    return msgspec.convert(envelope.expires_at, datetime).timestamp()


def msg_id_mismatch(envelope: TelegramOutbound, headers: Mapping[str, str] | None) -> str | None:
    """Return the ``Nats-Msg-Id`` header where it is there and differs from the body, which wins."""
    header = (headers or {}).get(MSG_ID_HEADER)
    return None if header is None or header == envelope.msg_id else header


def is_chat(text: str) -> bool:
    """Return whether ``text`` addresses a chat: a decimal id within 64 bits, or ``@name``.

    Strict on purpose: a form that Telegram might read as another number could reach another chat.
    """
    if re.fullmatch(r"@[A-Za-z0-9_]{4,}", text):
        return True
    return bool(re.fullmatch(r"-?[1-9][0-9]{0,18}", text)) and int(text) in _INT64


def _check(envelope: TelegramOutbound) -> None:
    for name in ("msg_id", "text"):
        if not getattr(envelope, name):
            raise EnvelopeError(name, "empty")
    if envelope.chat is not None and not is_chat(envelope.chat):
        raise EnvelopeError("chat", "neither a decimal chat id nor @name")
    if envelope.on_ambiguous not in (None, "retry", "park"):
        raise EnvelopeError("on_ambiguous", 'neither "retry" nor "park"')
    if envelope.expires_at is not None:
        try:
            msgspec.convert(envelope.expires_at, Annotated[datetime, msgspec.Meta(tz=True)])
        except msgspec.ValidationError:
            raise EnvelopeError("expires_at", "not an RFC 3339 time with an offset") from None


def _named(message: str) -> EnvelopeError:
    """Turn msgspec's words, which end in the path of the field, into our error."""
    reason, _, path = message.partition(" - at `$")
    field = path.strip("`.")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", reason)
    if missing:
        return EnvelopeError(missing[1], "missing")
    if reason.startswith("Invalid "):
        # The only kind of message that may quote the value.
        reason = "a value that is not allowed"
    return EnvelopeError(field if field in TelegramOutbound.__struct_fields__ else "", reason)


def _flaw(error: Exception) -> str:
    """Return msgspec's words where they are known to describe only the form, with a byte offset at most."""
    words = str(error)
    known = re.fullmatch(r"JSON is malformed: ([a-z ,]+\(byte \d+\))|(Input data was truncated)", words)
    if known:
        return known[1] or "it ends too early"
    return "its strings are not valid UTF-8"
