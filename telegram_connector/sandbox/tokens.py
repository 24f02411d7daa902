"""Bot tokens: which are well-formed, which are accepted, and who the bot behind one is."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from telegram_connector.sandbox.answers import Answer, from_preset
from telegram_connector.sandbox.presets import named

_MAX_TOKEN_BYTES = 80
_MAX_BOT_ID = 1 << 54


@dataclass(frozen=True)
class Bot:
    """A bot.

    Attributes:
        token: As in the URL, ``<id>:<secret>``.
        username: Without ``@``.
        first_name: Shown to people.
        state: ``ok``, ``revoked``, or the name of a preset that every method then answers.
    """

    token: str
    username: str = ""
    first_name: str = "Sandbox bot"
    state: str = "ok"

    def __post_init__(self) -> None:
        if self.state not in ("ok", "revoked") and named(self.state) is None:
            raise ValueError(f"a token's state is ok, revoked or a preset, not {self.state!r}")

    @property
    def id(self) -> int:
        """The number before the colon."""
        return int(self.token.partition(":")[0])

    def as_json(self) -> dict[str, Any]:
        """The Bot API's User object of the bot."""
        return {
            "id": self.id,
            "is_bot": True,
            "first_name": self.first_name,
            "username": self.username or f"sandbox_{self.id}_bot",
        }


class Tokens:
    """The tokens of one sandbox; thread-safe.

    Without declared tokens every well-formed one is accepted; with some, only those are.
    """

    def __init__(self, bots: Iterable[Bot] = ()) -> None:
        self._lock = threading.Lock()
        self._declared = {bot.token: bot for bot in bots}
        self._bots = dict(self._declared)

    def check(self, token: str) -> Bot | Answer:
        """The bot of a token, or the refusal that the Bot API has for it."""
        malformed = _malformed(token)
        if malformed is not None:
            return malformed
        with self._lock:
            bot = self._bots.get(token)
            if bot is None:
                if self._declared or token.endswith(":"):
                    return _preset("bot_401")
                bot = self._bots[token] = Bot(token)
        if bot.state == "ok":
            return bot
        return _preset("bot_401" if bot.state == "revoked" else bot.state)

    def set_state(self, token: str, state: str) -> None:
        """Sets a token's state: ``ok``, ``revoked`` or the name of a preset."""
        with self._lock:
            self._bots[token] = replace(self._bots.get(token) or Bot(token), state=state)

    def all(self) -> tuple[Bot, ...]:
        """Every bot that was declared or called."""
        with self._lock:
            return tuple(self._bots.values())

    def reset(self) -> None:
        """Back to the tokens that were declared at first."""
        with self._lock:
            self._bots = dict(self._declared)


def read_bot(value: Mapping[str, Any]) -> Bot:
    """A bot from its JSON object.

    Raises:
        ValueError: It has no token, or a field is unknown or not allowed.
    """
    try:
        bot = Bot(**value)
    except TypeError as error:
        raise ValueError(f"a token has token, username, first_name and state: {error}") from None
    if _malformed(bot.token) is not None:
        raise ValueError("a token looks like 123456:secret")
    return bot


def _malformed(token: str) -> Answer | None:
    too_long = len(token.encode("utf-8", "surrogatepass")) > _MAX_TOKEN_BYTES
    if not token or token[0] == "0" or ":" not in token or "/" in token or too_long:
        return _preset("bot_401_malformed")
    number = token.partition(":")[0]
    if not (number.isascii() and number.isdigit()):
        return _preset("bot_421")
    return _preset("bot_401_malformed") if int(number) >= _MAX_BOT_ID else None


def _preset(name: str) -> Answer:
    preset = named(name)
    answer = from_preset(preset) if preset else None
    if answer is None:
        raise ValueError(f"not a refusal: {name!r}")
    return answer
