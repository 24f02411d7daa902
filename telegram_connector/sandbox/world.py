"""The state that the Bot API's methods work on, and the parts of a Message object."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from telegram_connector.sandbox.chats import Chat, Roster
from telegram_connector.sandbox.clock import Clock
from telegram_connector.sandbox.flood import Flood
from telegram_connector.sandbox.record import Call, Message, Record
from telegram_connector.sandbox.timeline import Timeline
from telegram_connector.sandbox.tokens import Bot, Tokens
from telegram_connector.sandbox.updates import Updates


@dataclass
class World:
    """Everything one sandbox knows.

    Attributes:
        lock: Held while a method reads or changes it, so that message ids follow the order of acceptance.
        keep: How many messages can be replied to, edited and deleted.
    """

    clock: Clock
    roster: Roster
    tokens: Tokens
    flood: Flood
    record: Record
    updates: Updates = field(default_factory=Updates)
    timeline: Timeline = field(default_factory=Timeline)
    keep: int = 50_000
    lock: threading.RLock = field(default_factory=threading.RLock)
    _messages: dict[tuple[int, int], Message] = field(default_factory=dict)
    _last_ids: dict[int, int] = field(default_factory=dict)
    _last_sent: dict[tuple[int, int], float] = field(default_factory=dict)

    def next_message_id(self, chat: Chat) -> int:
        """The chat's next message id; ids begin after those of its topics, which are message ids too."""
        last = self._last_ids.get(chat.id)
        if last is None:
            last = max((topic.id for topic in chat.topics), default=0)
        self._last_ids[chat.id] = last + 1
        return last + 1

    def remember(self, message: Message) -> None:
        """Keeps a message for replies, edits and deletions."""
        self._messages[message.chat_id, message.message_id] = message
        while len(self._messages) > self.keep:
            del self._messages[next(iter(self._messages))]

    def note(self, call: Call, message: Message | None = None) -> None:
        """Records a call and the message that it made."""
        call, message = self.record.add(call, message)
        self.timeline.add(self._place(call, message), message, call)

    def change(self, message: Message) -> None:
        """Puts a later state of a message in its place."""
        self.remember(message)
        self.record.change_message(message)
        self.timeline.change(message)

    def load(self, message: Message) -> None:
        """Puts a message into its chat that was there before the sandbox was.

        Raises:
            ValueError: There is no such chat.
        """
        with self.lock:
            if self.roster.find(str(message.chat_id)) is None:
                raise ValueError(f"message {message.message_id} is in chat {message.chat_id}: no such chat")
            self.remember(message)
            last = self._last_ids.get(message.chat_id, 0)
            self._last_ids[message.chat_id] = max(last, message.message_id)
            # Nobody sent it here, so it is not in the record.
            self.timeline.add(str(message.chat_id), message)

    def _place(self, call: Call, message: Message | None) -> str:
        if message is not None:
            return str(message.chat_id)
        known = self.roster.known(call.chat_id)
        return call.chat_id if known is None else str(known.id)

    def message(self, chat_id: int, message_id: int) -> Message | None:
        """A message that is still there; None where there is none."""
        found = self._messages.get((chat_id, message_id))
        return None if found is None or found.deleted else found

    def slow_mode_wait(self, bot: Bot, chat: Chat, now: float) -> float:
        """Seconds that slow mode still asks of the bot in the chat; 0 for none."""
        last = self._last_sent.get((bot.id, chat.id))
        if last is None or not chat.slow_mode_seconds or chat.bot_status == "administrator":
            return 0.0
        return max(0.0, last + chat.slow_mode_seconds - now)

    def sent(self, bot: Bot, chat: Chat, now: float) -> None:
        """Notes the time of the bot's last message in the chat, for slow mode."""
        self._last_sent[bot.id, chat.id] = now

    def show(self, message: Message, *, with_reply: bool = True) -> dict[str, Any]:
        """The Bot API's Message object."""
        chat = self.roster.find(str(message.chat_id)) or Chat(message.chat_id)
        shown: dict[str, Any] = {"message_id": message.message_id}
        if message.message_thread_id is not None:
            shown["message_thread_id"] = message.message_thread_id
        if chat.type == "channel":
            shown["sender_chat"] = chat.as_json()
        else:
            shown["from"] = self.sender(message)
        shown["chat"] = chat.as_json()
        shown["date"] = message.date
        if message.message_thread_id is not None:
            shown["is_topic_message"] = True
        if with_reply and message.reply_to_message_id is not None:
            target = self.message(message.chat_id, message.reply_to_message_id)
            if target is not None:
                shown["reply_to_message"] = self.show(target, with_reply=False)
        shown["text"] = message.text
        if message.entities:
            shown["entities"] = [dict(entity) for entity in message.entities]
        return shown

    def hear(
        self, chat: Chat, text: str, user: Mapping[str, Any], reply_to: Message | None = None
    ) -> Message:
        """A person writes into a chat: every bot gets it by getUpdates, and may reply to it."""
        with self.lock:
            message = Message(
                seq=0,
                chat_id=chat.id,
                message_id=self.next_message_id(chat),
                raw_text=text,
                text=text,
                parse_mode="",
                entities=(),
                date=int(self.clock.now()),
                bot_id=0,
                message_thread_id=reply_to.message_thread_id if reply_to else None,
                reply_to_message_id=reply_to.message_id if reply_to else None,
                params={"from": str(user.get("first_name", ""))},
            )
            self.remember(message)
            self.timeline.add(str(chat.id), message)
            shown = self.show(message)
            if chat.type == "channel":
                self.updates.add(channel_post=shown)
            else:
                shown["from"] = dict(user)
                self.updates.add(message=shown)
            return message

    def sender(self, message: Message) -> dict[str, Any]:
        """The Bot API's User object of who wrote a message."""
        if message.bot_id == 0:
            name = message.params.get("from") or f"User {abs(message.chat_id)}"
            return {"id": abs(message.chat_id), "is_bot": False, "first_name": name}
        for bot in self.tokens.all():
            if bot.id == message.bot_id:
                return bot.as_json()
        return Bot(f"{message.bot_id}:").as_json()
