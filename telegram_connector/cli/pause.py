"""``pause`` and ``resume``: an operator stops sending to a chat, or at all, for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from telegram_connector import checks
from telegram_connector.ages import lasting
from telegram_connector.bridge import NatsClient
from telegram_connector.cli.check import printable
from telegram_connector.cli.durations import duration
from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import nats_settings
from telegram_connector.errors import BridgeError
from telegram_connector.operating import Change, Switch
from telegram_connector.pauses import reason as reason_of
from telegram_connector.pauses import whom

WAIT_SECONDS = 1.0


def _chat(value: str) -> str:
    try:
        return checks.chat_id(value)
    except checks.ValueFaultError as fault:
        raise click.BadParameter(str(fault)) from None


def _reason(value: str) -> str:
    try:
        return reason_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    short_help="Send nothing, or nothing to one chat, until resumed.",
    epilog=foot(
        'pause --for 30m --reason "moving the group"',
        "pause --chat -1001234567890",
        done="paused, also when no connector runs",
        failed="not paused: NATS cannot be asked, or refuses",
    ),
)
@click.option("--chat", type=_chat, metavar="ID", help="This chat alone, named as its envelopes name it.")
@click.option(
    "--for", "seconds", type=duration, metavar="TIME", help="End by itself after 90s, 10m, 1h30m or 2d."
)
@click.option(
    "--reason", type=_reason, metavar="TEXT", default="", help="Why; shown in status, logs and alerts."
)
def pause(chat: str | None, seconds: float | None, reason: str) -> None:
    """Send nothing, or nothing to one chat, until resumed.

    Nothing is lost: messages wait in order and are sent afterwards, but for those that expire meanwhile:
    they become dead letters. A send in flight is finished. The pause is kept in the bucket telegram_state: it
    outlives connectors, and is heeded by whichever is active, now or later. Running ones heed it at once. A
    paused bot tells TELEGRAM_CHAT_ID no alerts either; they go out on NATS.

    Pausing again replaces the pause. Needs NATS credentials (TELEGRAM_OPERATOR in deploy/), no bot token.
    """
    try:
        change = _change("pause", lambda switch: switch.pause(chat or "", seconds, reason))
    except ValueError as error:
        click.echo(f"telegram-connector pause: {error}", err=True)
        sys.exit(1)
    how_long = "until resumed" if seconds is None else f"for {lasting(seconds)}"
    click.echo(f"{whom(chat or '')} is paused {how_long}; {change.heard_by()}")
    _say_doubts(change)


@click.command(
    short_help="End a pause: the bot's, a chat's, or all.",
    epilog=foot(
        "resume",
        "resume --chat -1001234567890",
        "resume --all",
        done="resumed, or nothing was paused",
        failed="not resumed: NATS cannot be asked, or refuses",
    ),
)
@click.option("--chat", type=_chat, metavar="ID", help="This chat alone; the bot without.")
@click.option("--all", "everything", is_flag=True, help="The bot and every chat.")
def resume(chat: str | None, everything: bool) -> None:
    """End a pause: the bot's, a chat's, or all.

    Chats that were paused one by one stay so when the bot is resumed, and are named. Nothing happens where
    nothing is paused.
    """
    if chat is not None and everything:
        raise click.UsageError("give either --chat or --all")
    change = _change("resume", lambda switch: switch.resume(None if everything else chat or ""))
    if not change.ended:
        click.echo("nothing was paused" if everything else f"{whom(chat or '')} was not paused")
    else:
        names = ", ".join(whom(name) for name in change.ended)
        click.echo(f"resumed: {names}; {change.heard_by()}")
    left = [whom(name) for name in change.pauses.all()]
    if left:
        click.echo(f"still paused: {', '.join(left)}")
    _say_doubts(change)


def _change(command: str, act: Callable[[Switch], Change]) -> Change:
    settings = nats_settings()
    try:
        with NatsClient(settings, f"telegram_connector {command}") as client:
            return act(Switch(client, settings, WAIT_SECONDS))
    except BridgeError as error:
        click.echo(printable(f"telegram-connector {command}: {error}"), err=True)
        sys.exit(1)


def _say_doubts(change: Change) -> None:
    for words in change.doubts():
        click.echo(printable(f"telegram-connector: {words}"), err=True)
