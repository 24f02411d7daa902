"""What operators have paused, as a document. Pure: times are arguments, in seconds since 1970.

The commands write it, every connector reads it: it outlives them all.
"""

from __future__ import annotations

import msgspec

KEY = "pauses"
MAX_CHATS = 1_000  # some 300 kB with reasons; a message of NATS holds 1 MiB
MAX_REASON = 200


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nothing is sent, until it is resumed or the time is over.

    Attributes:
        since: When it was paused.
        until: When it ends by itself; None for not at all.
        reason: The operator's words.
    """

    since: float
    until: float | None = None
    reason: str = ""

    def ended(self, wall: float) -> bool:
        """Whether it is over by itself."""
        return self.until is not None and self.until <= wall


class Pauses(msgspec.Struct, frozen=True, omit_defaults=True):
    """All pauses of one durable: the bot's, and those of chats, named as envelopes name them."""

    bot: Pause | None = None
    chats: dict[str, Pause] = {}

    def all(self) -> dict[str, Pause]:
        """By chat; the bot's is that of ``""``."""
        return {**({"": self.bot} if self.bot else {}), **self.chats}

    def current(self, wall: float) -> Pauses:
        """Without those that are over."""
        return of({chat: pause for chat, pause in self.all().items() if not pause.ended(wall)})

    def without(self, chat: str) -> Pauses:
        """With the chat, or with ``""`` the bot, resumed."""
        return of({other: pause for other, pause in self.all().items() if other != chat})

    def having(self, chat: str, pause: Pause) -> Pauses:
        """With the chat, or with ``""`` the bot, paused; a pause that it has is replaced.

        Raises:
            ValueError: Too many chats are paused one by one.
        """
        paused = of({**self.all(), chat: pause})
        if len(paused.chats) > MAX_CHATS:
            raise ValueError(f"more than {MAX_CHATS} chats cannot be paused one by one: pause the bot")
        return paused


def of(pauses: dict[str, Pause]) -> Pauses:
    """From pauses by chat; the bot's is that of ``""``."""
    return Pauses(pauses.get(""), {chat: pause for chat, pause in pauses.items() if chat})


def key(stream: str, durable: str) -> str:
    """Where the document is kept in the state bucket."""
    return f"{KEY}.{stream}.{durable}"


def read(document: bytes) -> Pauses:
    """The document's pauses.

    Raises:
        ValueError: It is none; says where, quotes nothing.
    """
    try:
        pauses = msgspec.json.decode(document, type=Pauses)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no ValueError in msgspec 0.18
        raise ValueError(str(error) or "nested too deeply") from None
    if "" in pauses.chats:
        raise ValueError("a chat without a name")
    return pauses


def write(pauses: Pauses) -> bytes:
    """The document of the pauses."""
    return msgspec.json.encode(pauses)


def whom(chat: str) -> str:
    """Whom a pause is for, in words; ``""`` is the bot."""
    return f"chat {chat}" if chat else "the bot"


def reason(words: str) -> str:
    """An operator's words for why, on one line.

    Raises:
        ValueError: They are too many, or cannot be printed.
    """
    line = " ".join(words.split())
    if len(line) > MAX_REASON or not line.isprintable():
        raise ValueError(f"must be at most {MAX_REASON} printable characters")
    return line
