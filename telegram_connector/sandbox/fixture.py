"""A chat as a file: exported from one sandbox, there from the start in another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from telegram_connector.sandbox.chats import Chat
from telegram_connector.sandbox.record import Message
from telegram_connector.sandbox.timeline import Entry, Timeline

_NEEDED = ("chat_id", "message_id", "text")
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("chat_id", "message_id", "date", "bot_id"), int),
    **dict.fromkeys(("raw_text", "text", "parse_mode"), str),
    **dict.fromkeys(("message_thread_id", "reply_to_message_id"), (int, type(None))),
    **dict.fromkeys(("entities", "edits"), (list, tuple)),
    "params": dict,
    "deleted": bool,
}


def export(chat: Chat, timeline: Timeline) -> dict[str, Any]:
    """A chats file with this chat and the messages in it, those of people too. No token is in it."""
    entries = timeline.entries(str(chat.id), count=timeline.keep)
    return {
        "chats": [_without_defaults(chat)],
        "messages": [_message(entry) for entry in entries if entry.message is not None],
    }


def read_message(value: Any) -> Message:
    """A message from its JSON object in a chats file.

    Raises:
        ValueError: A field is missing, unknown or of another type.
    """
    if not isinstance(value, Mapping) or not value.keys() >= set(_NEEDED):
        raise ValueError(f"a message needs {', '.join(_NEEDED)}")
    unknown = sorted(set(value) - _TYPES.keys())
    if unknown:
        raise ValueError(f"unknown in a message: {', '.join(unknown)}; known are {', '.join(sorted(_TYPES))}")
    for name, item in value.items():
        if not isinstance(item, _TYPES[name]) or isinstance(item, bool) is not (name == "deleted"):
            raise ValueError(f"{name} of a message cannot be {item!r}")
    if value["message_id"] < 1:
        raise ValueError(f"message_id of a message is at least 1, not {value['message_id']}")
    lists = {name: tuple(value.get(name, ())) for name in ("entities", "edits")}
    defaults = {
        "raw_text": value["text"],
        "parse_mode": "",
        "date": 0,
        "bot_id": 0,
        "message_thread_id": None,
        "reply_to_message_id": None,
        "params": {},
    }
    return Message(**{**defaults, **value, **lists, "seq": 0})


def _message(entry: Entry) -> dict[str, Any]:
    shown = _without_defaults(entry.message)
    del shown["seq"]
    return shown


def _without_defaults(record: Any) -> dict[str, Any]:
    values = asdict(record)
    defaults = {field.name: field.default for field in fields(record) if field.default is not MISSING}
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
