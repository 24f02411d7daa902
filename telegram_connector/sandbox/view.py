"""Entries and chats as the page gets them, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from telegram_connector import markup
from telegram_connector.errors import MarkupError
from telegram_connector.sandbox.chats import Chat
from telegram_connector.sandbox.record import Call, Message
from telegram_connector.sandbox.timeline import Entry
from telegram_connector.sandbox.world import World

# What a chat's last entry or an answered message shows of a text.
_SNIPPET = 120

# What became of a call, as people see it.
SENT = "sent"
HEARD = "heard"  # a person wrote it
UNCLEAR = "unclear"  # a message is there, and the caller was told otherwise or nothing
HELD = "held"  # 429
REFUSED = "refused"
UNANSWERED = "unanswered"  # nothing was made, nothing was said


def entry(world: World, shown: Entry) -> dict[str, Any]:
    """One entry, without the raw requests."""
    last = shown.calls[-1] if shown.calls else None
    body: dict[str, Any] = {
        "number": shown.number,
        "place": shown.place,
        "chat": place(world, shown.place),
        "outcome": outcome(shown),
        "count": shown.count,
        "hold": hold(shown),
        "calls": [_call(call) for call in shown.calls],
    }
    if shown.message is not None:
        body["message"] = _message(world, shown.message)
        body["warnings"] = _warnings(shown.message)
    elif last is not None:
        body["position"] = _position(last)
        body["reply"] = _reply(world, shown.place, last.params)
    return body


def outcome(shown: Entry) -> str:
    """What became of it, in a word."""
    if not shown.calls:
        return HEARD
    # Of a message that was changed later, the call that made it.
    call = shown.calls[0] if shown.message is not None else shown.calls[-1]
    if shown.message is not None:
        return SENT if call.status == 200 and not call.cut else UNCLEAR
    if call.status is None:
        return UNANSWERED
    return HELD if call.status == 429 else REFUSED


def hold(shown: Entry) -> dict[str, Any] | None:
    """Until when the caller was told to wait, in Unix seconds, and in which words; None if it was not."""
    if outcome(shown) != HELD:
        return None
    call = shown.calls[-1]
    seconds = _retry_after(call)
    return None if seconds is None else {"until": call.at + seconds, "words": call.description}


def raw(shown: Entry) -> dict[str, Any]:
    """The calls of an entry as they were asked and answered."""
    return {
        "number": shown.number,
        "calls": [
            {
                **_call(call),
                "headers": dict(call.headers),
                "body": call.body.decode("utf-8", "backslashreplace"),
                "answer": call.answer.decode("utf-8", "backslashreplace"),
            }
            for call in shown.calls
        ],
    }


def place(world: World, name: str) -> dict[str, Any]:
    """A chat for the chat list; one that is none has the type "" and the ``chat_id`` that was asked for."""
    chat = world.roster.known(name)
    if chat is None:
        return {"place": name, "id": None, "type": "", "title": name, "state": "", "topics": []}
    return {
        "place": name,
        "id": chat.id,
        "type": chat.type,
        "title": title(chat),
        "username": chat.username,
        "state": chat.state,
        "topics": [{"id": topic.id, "name": topic.name, "state": topic.state} for topic in chat.topics],
    }


def title(chat: Chat) -> str:
    """What people call a chat."""
    shown = chat.as_json()
    return str(shown.get("title") or shown["first_name"])


def snippet(shown: Entry) -> str:
    """The beginning of an entry's text."""
    if shown.message is not None:
        return shown.message.text[:_SNIPPET]
    call = shown.calls[-1]
    return (call.params.get("text") or call.description or call.method)[:_SNIPPET]


def _message(world: World, message: Message) -> dict[str, Any]:
    chat = world.roster.known(str(message.chat_id)) or Chat(message.chat_id)
    from_chat = chat.type == "channel" and message.bot_id
    return {
        "message_id": message.message_id,
        "author": title(chat) if from_chat else world.sender(message)["first_name"],
        "date": message.date,
        "text": message.text,
        "entities": [dict(entity) for entity in message.entities],
        "raw_text": message.raw_text,
        "parse_mode": message.parse_mode,
        "topic": message.message_thread_id,
        "silent": message.params.get("disable_notification", "").lower() in ("true", "yes", "1"),
        "edits": list(message.edits),
        "deleted": message.deleted,
        "reply": _reply_to(world, message.chat_id, message.reply_to_message_id),
    }


def _reply(world: World, name: str, params: Mapping[str, str]) -> dict[str, Any] | None:
    """What a refused call was to answer or to change."""
    wanted = params.get("message_id") or params.get("reply_to_message_id")
    try:
        wanted = wanted or json.loads(params.get("reply_parameters") or "{}").get("message_id")
        return _reply_to(world, int(name), int(wanted)) if wanted else None
    except (ValueError, TypeError, AttributeError, RecursionError):
        # As odd as what was refused for it.
        return None


def _reply_to(world: World, chat_id: int, message_id: int | None) -> dict[str, Any] | None:
    if message_id is None:
        return None
    target = world.message(chat_id, message_id)
    return {
        "message_id": message_id,
        "number": world.timeline.number_of(chat_id, message_id),
        "author": world.sender(target)["first_name"] if target else "",
        "text": target.text[:_SNIPPET] if target else "Deleted message",
    }


def _call(call: Call) -> dict[str, Any]:
    return {
        "seq": call.seq,
        "at": call.at,
        "bot_id": call.bot_id,
        "verb": call.verb,
        "method": call.method,
        "params": dict(call.params),
        "status": call.status,
        "description": call.description,
        "retry_after": _retry_after(call),
        "fault": call.fault,
    }


def _retry_after(call: Call) -> int | None:
    if call.status != 429:
        return None
    try:
        return int(json.loads(call.answer)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError):
        # An answer of somebody's own making.
        return None


def _position(call: Call) -> int | None:
    """Where in the text the fault is that Telegram speaks of, in characters."""
    fault = markup.judge(call.params.get("text", ""), call.params.get("parse_mode")).fault
    return fault.position if fault is not None and fault.description == call.description else None


def _warnings(message: Message) -> list[dict[str, Any]]:
    if not message.bot_id:
        return []
    try:
        found = markup.warnings(message.raw_text, message.parse_mode)
    except MarkupError:
        # It came of a fixture, and Telegram would not take it.
        return []
    return [{"position": notice.position, "words": notice.words} for notice in found]
