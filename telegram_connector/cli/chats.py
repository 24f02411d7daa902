"""``chats``: which chats wrote to the bot, to find a chat's id."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

from telegram_connector.checkup.bot import describe, words
from telegram_connector.cli.check import printable
from telegram_connector.cli.logs import Scrubber
from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import EXIT_SETTINGS
from telegram_connector.disposition import BotFault
from telegram_connector.errors import SettingsError, TelegramConnectorError
from telegram_connector.settings import Settings
from telegram_connector.telegram import TelegramClient

QUESTION_SECONDS = 15.0

# All that it takes to ask the Bot API; the rest of the environment may be missing or wrong.
_FIELDS = ("bot_token", "api_base_url", "allow_http", "https_proxy", "no_proxy", "ca_bundle")


class _Refused(TelegramConnectorError):
    """Raised when the chats cannot be listed; says why."""


@click.command(
    short_help="List chats that wrote to the bot, to find an id.",
    epilog=foot(
        "chats",
        "chats --json | jq -r '.[] | select(.type == \"supergroup\") | .id'",
        done="listed, also when nobody wrote",
        failed="the Bot API cannot be asked, or refuses",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list of {id, type, title, username}.")
def chats(as_json: bool) -> None:
    """List the chats that wrote to the bot within the last day, to find a chat's id.

    Needs TELEGRAM_BOT_TOKEN and no NATS. Asks once for updates and confirms none, so whoever reads the bot's
    updates still gets them (a program that waits for them at this moment is interrupted, and asks again).
    Refused where the bot has a webhook. Shows no messages. In groups a bot sees commands and replies to it,
    and that it was added.
    """
    settings = _settings()
    scrub = Scrubber(settings.secrets)
    try:
        found = list(_of_updates(_updates(settings)))
    except _Refused as error:
        click.echo(printable(scrub(f"telegram-connector chats: {error}")), err=True)
        sys.exit(1)
    text = json.dumps(found, ensure_ascii=False, indent=2) if as_json else "\n".join(_table(found))
    click.echo(printable(scrub(text)))


def _settings() -> Settings:
    names = {name for field in _FIELDS for name in _variables(field)}
    env = {name: value for name, value in os.environ.items() if name in names}
    # The rest is made up, so that what is given is checked in full and not taken for dormant.
    env |= {"NATS_URL": "nats://localhost", "NATS_AUTH": "none", "TELEGRAM_CHAT_ID": "1"}
    try:
        settings = Settings.from_env(env)
    except SettingsError as error:
        _refuse_settings(error.faults)
    if settings.dormant:
        _refuse_settings(["TELEGRAM_BOT_TOKEN is not set"])
    return settings


def _variables(field: str) -> Sequence[str]:
    names: Sequence[str] = Settings.__dataclass_fields__[field].metadata["rule"].names
    return names


def _refuse_settings(faults: Sequence[str]) -> NoReturn:
    click.echo(f"telegram-connector: {len(faults)} setting(s) to mend:", err=True)
    for fault in faults:
        click.echo(f"  {fault}", err=True)
    sys.exit(EXIT_SETTINGS)


def _updates(settings: Settings) -> list[Any]:
    client = TelegramClient(
        settings.bot_token,
        settings.api_base_url,
        proxy_url=settings.proxy_url,
        ca_bundle=settings.ca_bundle,
    )
    try:
        deadline = time.monotonic() + QUESTION_SECONDS
        webhook = client.get_webhook_info(deadline)
        # A 404 comes from servers that do not know the method, and so have no webhooks.
        if not isinstance(webhook, dict) and not (
            isinstance(webhook, BotFault) and webhook.status_code == 404
        ):
            hint = " (TELEGRAM_BOT_TOKEN)" if isinstance(webhook, BotFault) else ""
            raise _Refused(f"{words(webhook)}{hint}")
        if isinstance(webhook, dict) and webhook.get("url"):
            raise _Refused(
                "the bot has a webhook, to which Telegram delivers all updates: look there, or remove it"
            )
        updates = client.get_updates(deadline)
        if not isinstance(updates, list):
            hint = " (TELEGRAM_BOT_TOKEN)" if isinstance(updates, BotFault) else ""
            raise _Refused(f"{words(updates)}{hint}")
        return updates
    finally:
        client.close()


def _of_updates(updates: list[Any]) -> Iterator[dict[str, Any]]:
    """Each chat once, the one that was heard of last at the end."""
    known: dict[int, dict[str, Any]] = {}
    for update in updates:
        for event in update.values() if isinstance(update, dict) else ():
            chat = _chat_of(event)
            if chat is not None:
                known.pop(chat["id"], None)
                known[chat["id"]] = chat
    for chat in known.values():
        yield {
            "id": chat["id"],
            "type": str(chat.get("type", "")),
            "title": describe({**chat, "username": None}),
            "username": chat.get("username"),
        }


def _chat_of(event: Any) -> dict[str, Any] | None:
    """The chat that an event of any kind came from; a button's is that of the message it is under."""
    if not isinstance(event, dict):
        return None
    chat = event.get("chat")
    if isinstance(chat, dict) and isinstance(chat.get("id"), int):
        return chat
    return _chat_of(event.get("message"))


def _table(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        yield "Nobody wrote to the bot within the last day: write it a word, or add it to the group."
        return
    rows = [("ID", "TYPE", "CHAT")]
    for chat in found:
        name = f"{chat['title']} @{chat['username']}" if chat["username"] else chat["title"]
        rows.append((str(chat["id"]), chat["type"], name.strip()))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for row in rows:
        yield f"{row[0]:>{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}"
