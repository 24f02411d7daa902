"""Chats and topics: what the sandbox knows about them, and whether a bot may write there."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from telegram_connector.sandbox.answers import Answer, from_preset, refusal
from telegram_connector.sandbox.params import integer
from telegram_connector.sandbox.presets import named

TYPES = ("private", "group", "supergroup", "channel")

# States by their short names, and the answer each stands for; {type} becomes the chat's type. Any other state
# is the name of a preset. EARLY ones are met by the Bot API server itself, before it looks at the text's
# length; all others are the words of Telegram's core, which sees a message last (facts: order of checks).
_STATES: Mapping[str, str] = {
    "not_found": "chat_not_found",
    "private_not_found": "chat_private_not_found",
    "blocked": "chat_blocked",
    "deactivated": "chat_deactivated",
    "cant_initiate": "chat_cant_initiate",
    "bot": "chat_bot_to_bot",
    "deleted": "chat_group_deleted",
    "no_write_access": "chat_no_write_access",
    "cant_access": "chat_cant_access",
    "write_forbidden": "chat_write_forbidden",
    "guest": "chat_guest_forbidden",
    "paid": "chat_paid_required",
}
_EARLY = frozenset(
    {
        "not_found",
        "private_not_found",
        "deactivated",
        "kicked",
        "left",
        "deleted",
        "migrated",
        "no_write_access",
        "cant_access",
    }
    | {"chat_not_found", "chat_private_not_found", "chat_deactivated", "chat_kicked_group"}
    | {"chat_kicked_supergroup", "chat_kicked_channel", "chat_kicked_old", "chat_not_member_group"}
    | {"chat_group_deleted", "chat_cant_access", "chat_no_write_access", "chat_need_admin_channel"}
    | {"mig_current", "mig_2016", "mig_2016_error_prefix", "mig_without_id"}
)
_TOPIC_STATES = ("open", "closed", "deleted")


@dataclass(frozen=True)
class Topic:
    """A forum topic.

    Attributes:
        id: Its ``message_thread_id``, 2 or more.
        name: Shown to people.
        state: ``open``, ``closed`` (members are refused with TOPIC_CLOSED) or ``deleted``, or the name of a
            preset.
    """

    id: int
    name: str = "topic"
    state: str = "open"


@dataclass(frozen=True)
class Chat:
    """A chat as the bots see it.

    Attributes:
        id: Telegram's id; negative for groups and channels.
        type: ``private``, ``group``, ``supergroup`` or ``channel``; "" takes it from the id.
        title: Of a group or channel.
        username: Public name without ``@``; a chat that has one is found by ``@name`` too.
        first_name: Of the person in a private chat.
        topics: The topics of a forum.
        any_topic: Whether every unlisted topic id of 2 or more is taken for an open topic.
        state: ``ok``, a short name (``blocked``, ``kicked``, ``left``, ``deleted``, ``deactivated``,
            ``migrated``, ``no_rights``, ``cant_initiate`` …) or the name of a preset.
        migrated_to: With ``state`` "migrated": the supergroup's id; None for a server that does not know it.
        slow_mode_seconds: Least seconds between two messages of a bot that is no administrator; 0 for none.
        bot_status: ``member`` or ``administrator``; administrators pass slow mode and closed topics.
    """

    id: int
    type: str = ""
    title: str = ""
    username: str = ""
    first_name: str = ""
    topics: tuple[Topic, ...] = ()
    any_topic: bool = False
    state: str = "ok"
    migrated_to: int | None = None
    slow_mode_seconds: int = 0
    bot_status: str = ""

    def __post_init__(self) -> None:
        kind = self.type or _type_of(self.id)
        if kind not in TYPES:
            raise ValueError(f"chat {self.id}: type must be one of {', '.join(TYPES)}, not {kind!r}")
        set_ = object.__setattr__
        set_(self, "type", kind)
        set_(self, "username", self.username.lstrip("@"))
        if not self.bot_status:
            set_(self, "bot_status", "administrator" if kind == "channel" else "member")
        if self.state not in {"ok", "kicked", "left", "migrated", "no_rights"} | set(_STATES):
            _known_preset(self.state, f"chat {self.id}: state")
        for topic in self.topics:
            if topic.state not in _TOPIC_STATES:
                _known_preset(topic.state, f"chat {self.id}, topic {topic.id}: state")

    @property
    def is_group(self) -> bool:
        """Whether Telegram's limit for groups applies: groups, supergroups and channels."""
        return self.type != "private"

    def refusal(self) -> Answer | None:
        """The answer this chat's state has for a message; None where it may be written to."""
        if self.state == "ok":
            return None
        if self.state == "kicked":
            return refusal(403, f"Forbidden: bot was kicked from the {self.type} chat")
        if self.state == "left":
            return refusal(403, f"Forbidden: bot is not a member of the {self.type} chat")
        if self.state == "migrated":
            if self.migrated_to is None:
                return _answer("mig_without_id")
            return _answer("mig_current", migrate_to_chat_id=self.migrated_to)
        if self.state == "no_rights":
            return _answer("chat_need_admin_channel" if self.type == "channel" else "chat_not_enough_rights")
        return _answer(_STATES.get(self.state, self.state))

    @property
    def refused_early(self) -> bool:
        """Whether the state is met before the text's emptiness and length are."""
        return self.state in _EARLY or (self.state == "no_rights" and self.type == "channel")

    def topic(self, thread_id: int) -> Topic | None:
        """The topic of that id; None where there is none."""
        for topic in self.topics:
            if topic.id == thread_id:
                return topic
        # General is topic 1, and naming it outright is refused.
        return Topic(thread_id) if self.any_topic and thread_id > 1 else None

    def as_json(self) -> dict[str, Any]:
        """The Bot API's Chat object."""
        body: dict[str, Any] = {"id": self.id}
        if self.type == "private":
            body["first_name"] = self.first_name or f"User {self.id}"
        else:
            body["title"] = self.title or f"Chat {self.id}"
        if self.username:
            body["username"] = self.username
        if self.topics and self.type == "supergroup":
            body["is_forum"] = True
        body["type"] = self.type
        return body


class Roster:
    """The chats of one sandbox; thread-safe.

    Unless it is strict, a chat id that nobody declared is a chat that accepts everything.
    """

    def __init__(self, chats: Iterable[Chat] = (), *, strict: bool = False) -> None:
        self._strict = strict
        self._lock = threading.Lock()
        self._declared = tuple(chats)
        self._chats = {chat.id: chat for chat in self._declared}

    def find(self, chat_id: str) -> Chat | None:
        """The chat of a ``chat_id`` parameter, a number or ``@name``; None is "chat not found"."""
        with self._lock:
            if chat_id.startswith("@"):
                return self._by_name(chat_id[1:])
            try:
                number = int(chat_id)
            except ValueError:
                return None
            known = self._chats.get(number)
            if known is None and not self._strict and 0 < abs(number) < 1 << 52:
                known = self._chats[number] = Chat(number, any_topic=_type_of(number) == "supergroup")
            return known

    def known(self, chat_id: str) -> Chat | None:
        """As `find`, but only among chats that are there already."""
        with self._lock:
            if not chat_id.startswith("@"):
                return self._chats.get(integer(chat_id))
            names = (chat for chat in self._chats.values() if chat.username)
            return next((chat for chat in names if chat.username.lower() == chat_id[1:].lower()), None)

    def put(self, chat: Chat) -> None:
        """Declares a chat, or replaces it."""
        with self._lock:
            self._chats[chat.id] = chat

    def change(self, chat_id: int, changes: Mapping[str, Any]) -> Chat:
        """Changes what is named of a chat, which is declared if it was not.

        Raises:
            ValueError: A field is unknown or its value is not allowed.
        """
        with self._lock:
            before = self._chats.get(chat_id) or Chat(chat_id, any_topic=_type_of(chat_id) == "supergroup")
            after = replace(before, **_read_fields({**changes, "id": chat_id}))
            self._chats[chat_id] = after
            return after

    def all(self) -> tuple[Chat, ...]:
        """Every chat that was declared or written to, in that order."""
        with self._lock:
            return tuple(self._chats.values())

    def reset(self) -> None:
        """Back to the chats that were declared at first."""
        with self._lock:
            self._chats = {chat.id: chat for chat in self._declared}

    def _by_name(self, name: str) -> Chat | None:
        wanted = name.lower()
        for chat in self._chats.values():
            if chat.username.lower() == wanted:
                return chat
        if self._strict or not wanted.isascii() or not wanted.replace("_", "").isalnum():
            return None
        # An invented channel's id follows from its name, so that it is the same in every run.
        number = -1_009_000_000_000 - int.from_bytes(wanted.encode()[-4:], "big")
        chat = self._chats[number] = Chat(number, "channel", title=name, username=name)
        return chat


def read_chat(value: Mapping[str, Any]) -> Chat:
    """A chat from its JSON object.

    Raises:
        ValueError: It has no id, or a field is unknown or not allowed.
    """
    if not isinstance(value, Mapping) or "id" not in value:
        raise ValueError("a chat needs an id")
    return Chat(**_read_fields(value))


def _read_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(Chat)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(f"unknown in a chat: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    read = dict(value)
    if not isinstance(read["id"], int):
        raise ValueError(  # noqa: TRY004 - the same for every field of a file
            f"a chat's id is a number, not {read['id']!r}"
        )
    if not isinstance(read.get("topics", ()), list | tuple):
        raise ValueError("topics is a list")  # noqa: TRY004 - the same for every field of a file
    if "topics" in read:
        read["topics"] = tuple(t if isinstance(t, Topic) else _read_topic(t) for t in read["topics"])
    return read


def _read_topic(value: Mapping[str, Any]) -> Topic:
    try:
        return Topic(**value)
    except TypeError as error:
        raise ValueError(f"a topic has id, name and state: {error}") from None


def _type_of(chat_id: int) -> str:
    if chat_id > 0:
        return "private"
    return "supergroup" if str(chat_id).startswith("-100") and chat_id < -1_000_000_000_000 else "group"


def _known_preset(name: str, what: str) -> None:
    if named(name) is None:
        raise ValueError(f"{what}: neither a state nor a preset: {name!r}")


def _answer(name: str, **changed: int) -> Answer | None:
    preset = named(name)
    return from_preset(preset, **changed) if preset else None
