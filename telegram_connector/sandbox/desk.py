"""What a test asks of a sandbox and tells it: the same for Python and for the control API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from telegram_connector.sandbox import flood as floods
from telegram_connector.sandbox.chats import Chat, Roster, read_chat
from telegram_connector.sandbox.clock import Clock
from telegram_connector.sandbox.faults import Fault, Faults, Rule, parse_rule, read_rule
from telegram_connector.sandbox.fixture import read_message
from telegram_connector.sandbox.record import Call, Message, OrderBreak, Record, TextFilter
from telegram_connector.sandbox.timeline import Timeline
from telegram_connector.sandbox.tokens import Bot, Tokens, read_bot
from telegram_connector.sandbox.world import World

ChatsSource = str | Path | Iterable[Chat | Mapping[str, Any]]
FaultsSource = str | Path | Iterable[str | Rule | Mapping[str, Any]]
FloodSource = str | floods.Limits | None

_NUMBER = re.compile(r"\d+")

T = TypeVar("T")


@dataclass(frozen=True)
class Declared:
    """What a chats file declares.

    Attributes:
        chats: The chats.
        bots: The only bots whose tokens are accepted; empty accepts every well-formed token.
        messages: What is in the chats already.
    """

    chats: tuple[Chat, ...] = ()
    bots: tuple[Bot, ...] = ()
    messages: tuple[Message, ...] = ()


def read_chats(source: ChatsSource | None) -> Declared:
    """Chats from a file's path, from chats, or from their JSON objects.

    Raises:
        ValueError: Something in it is not allowed.
        OSError: The file cannot be read.
    """
    if source is None:
        return Declared()
    if isinstance(source, str | Path):
        content = _read_file(source, "chats", {"chats", "tokens", "messages"})
        bots = tuple(read_bot(bot) for bot in content.get("tokens", []))
        messages = tuple(read_message(message) for message in content.get("messages", []))
        return Declared(tuple(read_chat(chat) for chat in content.get("chats", [])), bots, messages)
    return Declared(tuple(chat if isinstance(chat, Chat) else read_chat(chat) for chat in source))


def read_faults(source: FaultsSource | None) -> tuple[Rule, ...]:
    """Rules from a file's path, or from rules, their JSON objects, or texts such as ``flood:chat=5``.

    Raises:
        ValueError: Something in it is not allowed.
        OSError: The file cannot be read.
    """
    if source is None:
        return ()
    if isinstance(source, str | Path):
        content = _read_file(source, "faults", {"faults"})
        return tuple(_rule(item) for item in content.get("faults", []))
    return tuple(_rule(item) for item in source)


class Desk:
    """The state of one sandbox, and everything that may be asked or changed while it runs; thread-safe."""

    def __init__(
        self,
        *,
        chats: ChatsSource | None = None,
        faults: FaultsSource | None = None,
        flood: FloodSource = None,
        strict: bool = False,
        clock: Clock | None = None,
        keep: int = 50_000,
    ) -> None:
        declared = read_chats(chats)
        self.clock = clock or Clock()
        self.world = World(
            clock=self.clock,
            roster=Roster(declared.chats, strict=strict),
            tokens=Tokens(declared.bots),
            flood=floods.Flood(_limits(flood)),
            record=Record(keep),
            timeline=Timeline(keep),
            keep=keep,
        )
        for message in declared.messages:
            self.world.load(message)
        self.rules = Faults()
        self.rules.replace_all(read_faults(faults))

    # -- asking
    # -----------------------------------------------------------------------------------------------

    def messages(self, chat: int | None = None, text: TextFilter | None = None) -> list[Message]:
        """Accepted messages in order of acceptance.

        Args:
            chat: Only of this chat.
            text: Only with this raw text, exactly; a compiled pattern is searched for in the raw text.
        """
        return self.world.record.messages(chat, text)

    def requests(
        self,
        method: str | None = None,
        chat: int | str | None = None,
        status: int | None = None,
        accepted: bool | None = None,
    ) -> list[Call]:
        """Every call of the Bot API with its answer, in the order of the answers, refused ones too.

        Args:
            method: Only of this method, in any letter case.
            chat: Only with this ``chat_id``.
            status: Only answered with this HTTP status.
            accepted: Only those that did, or did not, create a message.
        """
        return self.world.record.calls(method, chat, status, accepted)

    def count(self, chat: int | None = None, text: TextFilter | None = None) -> int:
        """How many messages `messages` gives."""
        return len(self.messages(chat, text))

    def wait(
        self,
        count: int = 1,
        chat: int | None = None,
        text: TextFilter | None = None,
        timeout_seconds: float = 10.0,
    ) -> list[Message]:
        """Waits until at least `count` messages pass the filters of `messages`, and returns them.

        Raises:
            TimeoutError: They did not within `timeout_seconds`, or the sandbox stopped; says what had come.
        """
        return self.world.record.wait_messages(count, chat, text, timeout_seconds)

    def wait_requests(
        self,
        count: int = 1,
        method: str | None = None,
        chat: int | str | None = None,
        status: int | None = None,
        accepted: bool | None = None,
        timeout_seconds: float = 10.0,
    ) -> list[Call]:
        """Waits until at least `count` calls pass the filters of `requests`, and returns them.

        Raises:
            TimeoutError: They did not within `timeout_seconds`, or the sandbox stopped; says what had come.
        """
        return self.world.record.wait_calls(
            lambda: self.requests(method, chat, status, accepted), count, timeout_seconds
        )

    def duplicates(self) -> list[list[Message]]:
        """Groups of two or more messages with the same raw text in the same chat."""
        return self.world.record.duplicates()

    def order(self) -> dict[int, list[str]]:
        """The raw texts of each chat in order of acceptance."""
        return self.world.record.order()

    def order_breaks(self, number: str | re.Pattern[str] = _NUMBER) -> list[OrderBreak]:
        """Messages that came after one with a higher number in their text, in the same chat.

        Args:
            number: Where the number is in a text: the last match, or its first group. Texts without one are
                passed over, and so is a text that was received before: that is a duplicate.
        """
        return self.world.record.order_breaks(re.compile(number))

    def clear(self) -> None:
        """Forgets messages and calls; chats, faults and the counts of flood control stay as they are."""
        self.world.record.clear()
        self.world.timeline.clear()

    # -- changing
    # ---------------------------------------------------------------------------------------------

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The rules at work with their counters, in the order in which they are asked."""
        return self.rules.all()

    def set_fault(self, fault: str | Rule | Mapping[str, Any], **conditions: Any) -> Fault:
        """Adds a rule; one of the same name is replaced.

        Args:
            fault: A preset's name, a rule, or a rule's JSON object.
            **conditions: With a preset's name or JSON object: more fields of that object (``chat``, ``nth``,
                ``times``, ``retry_after`` …).

        Raises:
            ValueError: There is no such rule.
        """
        if isinstance(fault, Rule):
            if conditions:
                raise ValueError("conditions belong into the rule itself")
            return self._told(self.rules.add(fault))
        value: dict[str, Any] = {"preset": fault} if isinstance(fault, str) else dict(fault)
        value.update(conditions)
        # Two rules by one preset, for two chats, are two rules; only a name that was given replaces.
        return self._told(self.rules.add(read_rule(value)))

    def remove_fault(self, fault: Fault) -> None:
        """Takes a rule back; nothing happens where it is gone already."""
        self.rules.remove(fault)
        self.world.timeline.tell()

    def clear_faults(self) -> None:
        """Takes all rules back."""
        self.set_faults(())

    def set_faults(self, faults: FaultsSource) -> None:
        """Puts these rules in the place of all others.

        Raises:
            ValueError: There is no such rule.
        """
        self.rules.replace_all(read_faults(faults))
        self.world.timeline.tell()

    def set_chat(self, chat_id: int, **changes: Any) -> Chat:
        """Changes what is named of a chat (``state="blocked"`` …); an undeclared one is declared thereby.

        Raises:
            ValueError: A field is unknown or its value is not allowed.
        """
        return self._told(self.world.roster.change(chat_id, changes))

    def revoke(self, token: str) -> None:
        """Answers 401 for the token from now on."""
        self.world.tokens.set_state(token, "revoked")

    def restore(self, token: str) -> None:
        """Accepts the token again."""
        self.world.tokens.set_state(token, "ok")

    def set_token(self, token: str, state: str) -> None:
        """Puts a token into a state: ``ok``, ``revoked``, or a preset that every method then answers.

        Raises:
            ValueError: There is no such state.
        """
        self.world.tokens.set_state(token, state)

    def set_flood(self, flood: FloodSource) -> None:
        """Sets flood control as `flood` of the constructor does; its counts begin anew.

        Raises:
            ValueError: It is none of these.
        """
        limits = _limits(flood)
        with self.world.lock:
            self.world.flood.limits = limits
            self.world.flood.reset()
        self.world.timeline.tell()

    def say(
        self,
        chat_id: int,
        text: str,
        first_name: str = "",
        user_id: int | None = None,
        reply_to_message_id: int | None = None,
    ) -> Message:
        """A person writes into a chat: bots get it by getUpdates and may reply to it.

        Args:
            chat_id: The chat.
            text: What is written.
            first_name: Of the person.
            user_id: Of the person; None takes the private chat's own.
            reply_to_message_id: The message that is answered, in the same chat.

        Raises:
            ValueError: There is no such chat, or no such message in it.
        """
        chat = self.world.roster.find(str(chat_id))
        if chat is None:
            raise ValueError(f"no chat {chat_id}")
        reply_to = None
        if reply_to_message_id is not None:
            reply_to = self.world.message(chat_id, reply_to_message_id)
            if reply_to is None:
                raise ValueError(f"no message {reply_to_message_id} in chat {chat_id}")
        user = {
            "id": user_id or abs(chat_id),
            "is_bot": False,
            "first_name": first_name or f"User {abs(chat_id)}",
        }
        return self.world.hear(chat, text, user, reply_to)

    def _told(self, value: T) -> T:
        """Tells who looks on that something was set."""
        self.world.timeline.tell()
        return value


def _rule(item: str | Rule | Mapping[str, Any]) -> Rule:
    if isinstance(item, Rule):
        return item
    return parse_rule(item) if isinstance(item, str) else read_rule(item)


def _limits(flood: FloodSource) -> floods.Limits | None:
    return floods.parse(flood) if isinstance(flood, str) else flood


def _read_file(path: str | Path, what: str, known: set[str]) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{what} file {path}: not JSON: {error}") from None
    if not isinstance(content, dict) or set(content) - known:
        raise ValueError(f"{what} file {path}: expected an object with {' and '.join(sorted(known))}")
    return content
