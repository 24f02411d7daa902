"""The Bot API's side of a check-up: is it there, who is the bot, may it write to the default chat."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from telegram_connector.checkup.finding import Finding, skip
from telegram_connector.checkup.skew import Reading, reading
from telegram_connector.classify import one_line
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Tried,
    Unavailable,
)
from telegram_connector.settings import Settings
from telegram_connector.telegram import TelegramClient

BOT_API = "Bot API"
TOKEN = "token"  # noqa: S105 - the name of a check
CHAT = "default chat"

QUESTION_SECONDS = 8.0  # per question, however slowly it is answered
_LOOK_FOR_IDS = "telegram-connector chats shows the ids of chats that wrote to the bot"


class BotCheck:
    """Asks the Bot API four questions at most; sends nothing."""

    names = (BOT_API, TOKEN, CHAT)

    def __init__(self, settings: Settings, deadline: float, wall: Callable[[], float]) -> None:
        """Prepare; nothing is connected yet.

        Args:
            settings: As for the relay.
            deadline: Monotonic seconds by which the last question is to be answered.
            wall: This machine's clock, in seconds of the epoch.
        """
        self.readings: list[Reading] = []
        self._settings = settings
        self._deadline = deadline
        self._wall = wall
        self._client = TelegramClient(
            settings.bot_token,
            settings.api_base_url,
            proxy_url=settings.proxy_url,
            ca_bundle=settings.ca_bundle,
        )

    def findings(self) -> Iterator[Finding]:
        """Look at one thing after the other; what depends on a failed one is skipped."""
        try:
            reached = self._reach()
            yield reached
            if reached.severity == "fault":
                yield from skip((TOKEN, CHAT), "the Bot API cannot be reached")
                return
            known = self._who()
            yield known
            if known.severity == "fault":
                yield from skip((CHAT,), "the bot is not known")
                return
            yield self._chat()
        finally:
            self._client.close()

    def _until(self) -> float:
        return min(self._deadline, time.monotonic() + QUESTION_SECONDS)

    def _reach(self) -> Finding:
        api = urlsplit(self._settings.api_base_url)
        where = f"{api.scheme}://{api.netloc}"
        setting = "TELEGRAM_API_BASE_URL"
        proxy = urlsplit(self._settings.proxy_url or "")
        if proxy.hostname:
            # The proxy looks the name up, perhaps in another network than ours.
            where += f", through the proxy {_place(proxy.hostname, proxy.port)}"
            setting = f"{api.scheme.upper()}_PROXY"
        else:
            try:
                where += _addresses(api.hostname or "", api.port or (443 if api.scheme == "https" else 80))
            except OSError:
                return Finding(BOT_API, "fault", f"{where}: the host name cannot be resolved ({setting})")
        match self._client.reach(self._until()):
            case Unavailable(why, None) | Ambiguous(why, None) | Unavailable(why, 407):
                if "certificate" in why:
                    setting = "REQUESTS_CA_BUNDLE"
                return Finding(BOT_API, "fault", f"{where}: {why} ({setting})")
        safety = "TLS verified" if api.scheme == "https" else "plain http"
        whose = "" if self._settings.api_is_telegram else "; not Telegram's own server"
        return Finding(BOT_API, "ok", f"{where}, {safety}{whose}")

    def _who(self) -> Finding:
        asked_at = self._wall()
        answer = self._client.get_me(self._until())
        said = self._client.server_time
        if said is not None:
            self.readings.append(reading("the Bot API", said, asked_at, self._wall(), step=1.0))
        match answer:
            case Sent():
                return Finding(TOKEN, "ok", f"the bot is @{self._client.bot_name}")
            case BotFault(404, why):
                return Finding(
                    TOKEN, "fault", f"{why}: is that a Bot API server? (TELEGRAM_API_BASE_URL, or the token)"
                )
            case BotFault(_, why) | Terminal(_, why):
                return Finding(TOKEN, "fault", f"refused: {why} (TELEGRAM_BOT_TOKEN)")
        return Finding(TOKEN, "fault", f"getMe brought no answer that says anything: {words(answer)}")

    def _chat(self) -> Finding:
        chat_id = self._settings.chat_id
        chat = self._client.get_chat(chat_id, self._until())
        match chat:
            case Migrated(new_chat):
                return Finding(
                    CHAT, "warning", f"{chat_id} has become a supergroup: set TELEGRAM_CHAT_ID={new_chat}"
                )
            case Terminal(_, why):
                return Finding(CHAT, "fault", f"{chat_id}: {why} (TELEGRAM_CHAT_ID; {_LOOK_FOR_IDS})")
        if not isinstance(chat, dict):
            return Finding(CHAT, "fault", f"{chat_id}: getChat brought no answer: {words(chat)}")
        kind = str(chat.get("type") or "chat")
        title = f"{kind} {describe(chat)}".rstrip()
        if kind == "private":
            # Telegram tells of a block only to who sends something.
            return Finding(CHAT, "ok", f"{title}: started; whether it blocked the bot shows at the next send")
        member = self._client.get_own_membership(chat_id, self._until())
        if not isinstance(member, dict):
            return Finding(CHAT, "fault", f"{title}: is the bot in it? {words(member)} (TELEGRAM_CHAT_ID)")
        why_not = _why_it_may_not_write(kind, chat, member)
        if why_not:
            return Finding(CHAT, "fault", f"{title}: {why_not} (TELEGRAM_CHAT_ID)")
        slow = chat.get("slow_mode_delay")
        is_slow = slow and member.get("status") == "member"
        return Finding(
            CHAT,
            "ok",
            f"{title}: the bot is {member.get('status')} and may write"
            + (f", every {slow} s (slow mode)" if is_slow else ""),
        )


def describe(chat: dict[str, Any]) -> str:
    """A chat's title or person's name, and its @name, on one line."""
    name = chat.get("title") or " ".join(
        str(part) for part in (chat.get("first_name"), chat.get("last_name")) if part
    )
    username = chat.get("username")
    return one_line(" ".join(part for part in (str(name or ""), f"@{username}" if username else "") if part))


def words(answer: Tried) -> str:
    """What went wrong with a question."""
    match answer:
        case Sent():
            return "nothing"
        case Transient(429, _, seconds) if seconds is not None:
            return f"too many requests; Telegram asks to wait {seconds:g} s"
        case Transient() | Unavailable() | Ambiguous() | Terminal() | Migrated() | BotFault():
            return answer.description


def _why_it_may_not_write(kind: str, chat: dict[str, Any], member: dict[str, Any]) -> str:
    status = member.get("status")
    if status in ("left", "kicked") or (status == "restricted" and member.get("is_member") is False):
        return "the bot was removed from it" if status == "kicked" else "the bot is not in it"
    if status == "creator":
        return ""
    if kind == "channel":
        if status != "administrator":
            return "the bot must be an administrator of a channel"
        return "" if member.get("can_post_messages") else "the bot lacks the right to post messages"
    permissions = chat.get("permissions")
    of_all = permissions if isinstance(permissions, dict) else {}
    if status == "restricted" and member.get("can_send_messages") is False:
        return "the bot is restricted there and may not send messages"
    if status == "member" and of_all.get("can_send_messages") is False:
        return "only administrators may write there, and the bot is none"
    return ""


def _addresses(host: str, port: int) -> str:
    found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    different = list(dict.fromkeys(found))
    if different == [host]:
        return ""
    return " at " + ", ".join(different[:3]) + (", …" if len(different) > 3 else "")


def _place(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown
