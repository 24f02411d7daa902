"""``ledger list``, ``show``, ``why`` and ``link``: nothing is changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import click
import msgspec

from telegram_connector.ages import Ages, age
from telegram_connector.bridge import NatsClient
from telegram_connector.cli.check import printable
from telegram_connector.cli.ledger.desk import JSON, KEYS, Readable, opened, record_at
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import (
    EXIT_FAILED,
    age_options,
    complain,
    one_line_errors,
    show_json,
    show_json_array,
    show_table,
    utc_now,
)
from telegram_connector.cli.settings import bot_id, nats_settings
from telegram_connector.envelope import is_chat
from telegram_connector.links import NOT_AVAILABLE, LinkNotFound, Links
from telegram_connector.record import STATUSES, Record, chat_hash, shown
from telegram_connector.resolution import in_doubt, read_time
from telegram_connector.story import SHORT, named, story
from telegram_connector.wording import counted, visible


@click.command(
    "list",
    short_help="List records, oldest message first.",
    epilog=foot(
        "ledger list --in-doubt",
        "ledger list --status sent --newer-than 1h --json",
        done="listed, also when there is none",
        failed="some cannot be read, or NATS cannot be asked, or refuses",
    ),
)
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="In this state.")
@click.option("--in-doubt", "doubtful", is_flag=True, help="Those that wait for an operator's word.")
@click.option("--route", help="Of this route.")
@click.option("--chat", metavar="ID", help="Sent to this chat, as it was sent to: decimal or @name.")
@age_options
@JSON
def list_(
    statuses: tuple[str, ...],
    doubtful: bool,
    route: str | None,
    chat: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    as_json: bool,
) -> None:
    """List records, oldest message first.

    Filters combine: all must hold, of --status any. An age is the time since a record was last written. With
    --json one array of objects with all fields of a record, null where there is nothing.
    """
    if chat is not None and not is_chat(chat):
        raise click.BadParameter("neither a decimal chat id nor @name", param_hint="--chat")
    settings, now = nats_settings(), utc_now()
    ages, ack_wait = Ages(older_than, newer_than), settings.ack_wait_seconds

    def wanted(record: Record) -> bool:
        return (
            (not statuses or record.status in statuses)
            and (not doubtful or in_doubt(record, now, ack_wait))
            and (route is None or record.route_id == route)
            and (chat is None or record.chat_hash == chat_hash(record.bot, chat))
            and ages.hold(read_time(record.updated_at), now)
        )

    readable = Readable("ledger list")
    with opened("ledger list", settings) as archive:
        found = [record for record in readable.records(archive.records()) if wanted(record)]
    found.sort(key=lambda record: (read_time(record.created_at), record.key))
    if as_json:
        show_json_array(map(shown, found))
    else:
        if found:
            show_table(_HEADINGS, (_cells(record, now) for record in found))
        click.echo(_counts(found), err=True)
    readable.end()


_HEADINGS = ("KEY", "AGE", "STATUS", "TRIES", "MESSAGE", "ROUTE", "MSG_ID", "ERROR")


def _cells(record: Record, now: datetime) -> tuple[str, ...]:
    return (
        record.key[:SHORT],
        age(read_time(record.updated_at), now),
        record.status,
        str(record.attempts),
        "" if record.message_id is None else str(record.message_id),
        record.route_id or "",
        record.msg_id,
        record.last_error or record.reason or "",
    )


def _counts(found: Sequence[Record]) -> str:
    statuses = Counter(record.status for record in found)
    listed = ", ".join(f"{number:,} {status}" for status, number in statuses.most_common())
    return counted(len(found), "record") + (f": {listed}" if listed else "")


@click.command(
    short_help="Show records in full.",
    epilog=foot(
        "ledger show 63484637",
        "ledger show 63484637 --json",
        done="shown",
        failed="one is not there, or NATS cannot be asked, or refuses",
    ),
)
@KEYS
@JSON
def show(keys: tuple[str, ...], as_json: bool) -> None:
    """Show records in full, and what their states mean in words.

    KEY is as ledger list shows it; its first digits are enough where no other record begins with them.
    """
    if not keys:
        raise click.UsageError("say which ones: KEY")
    settings, now = nats_settings(), utc_now()
    with opened("ledger show", settings) as archive:
        found = [record_at(archive, key)[1] for key in keys]
    if as_json:
        show_json_array(map(shown, found))
        return
    for number, record in enumerate(found):
        click.echo("" if number == 0 else "\n", nl=False)
        click.echo(printable(f"{record.key}\n  {story(record, now, settings.ack_wait_seconds)}"))
        for name, value in shown(record).items():
            if value not in (None, False) and name != "key":
                click.echo(printable(f"  {name:<22}  {visible(str(value))}"))


@click.command(
    short_help="Say what became of a message, by the publisher's id.",
    epilog=foot(
        "ledger why order-1234-filled",
        done="said",
        failed="no record of it, or NATS cannot be asked, or refuses",
    ),
)
@click.argument("msg_id")
@JSON
def why(msg_id: str, as_json: bool) -> None:
    """Say what became of a message and why, by the publisher's MSG_ID.

    One that was sent to several places has several records, and so has one that was split, by part.
    """
    settings, now = nats_settings(), utc_now()
    readable = Readable("ledger why")
    with opened("ledger why", settings) as archive:
        found = [
            record
            for record in readable.records(archive.records())
            if msg_id in (record.msg_id, record.group)
        ]
    found.sort(key=lambda record: (read_time(record.created_at), record.part or 0, record.key))
    if as_json:
        show_json_array(map(shown, found))
    for record in () if as_json else found:
        words = story(record, now, settings.ack_wait_seconds)
        click.echo(printable(f"{record.key[:SHORT]}  {named(record)}: {words}"))
    if not found:
        complain(
            "ledger why",
            f"no record of {msg_id}: no connector with TG_LEDGER=kv has met it, or it was forgotten since",
        )
    readable.end()
    if not found:
        sys.exit(EXIT_FAILED)


# A chat's id may begin with a minus, which is no option.
@click.command(
    context_settings={"ignore_unknown_options": True},
    short_help="Say which message of ours a message in a chat is.",
    epilog=foot(
        "ledger link -1001234567890 4711",
        "ledger link -1001234567890 4711 --bot 123456 --json",
        done="found",
        failed="no link is kept, or NATS cannot be asked, or refuses",
    ),
)
@click.argument("chat")
@click.argument("message_id", type=click.IntRange(1))
@click.option("--bot", metavar="ID", help="The bot's id; that of TELEGRAM_BOT_TOKEN without.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def link(chat: str, message_id: int, bot: str | None, as_json: bool) -> None:
    """Say which message of ours MESSAGE_ID in CHAT is; CHAT is a decimal id.

    Where no link is kept it says "old reply target not available" and guesses nothing.
    """
    if not is_chat(chat) or chat.startswith("@"):
        raise click.BadParameter("no decimal chat id", param_hint="CHAT")
    bot = bot or bot_id()
    if bot is None:
        raise click.UsageError("say which bot: --bot ID, which stands before the colon in its token")
    settings = nats_settings()
    with one_line_errors("ledger link"), NatsClient(settings, "telegram_connector ledger link") as client:
        try:
            found = Links(client, bot).resolve(chat, message_id)
        except LinkNotFound:
            click.echo(NOT_AVAILABLE)
            sys.exit(EXIT_FAILED)
    fields = msgspec.structs.asdict(found)
    if as_json:
        show_json(fields)
        return
    for name, value in fields.items():
        if value is not None:
            click.echo(printable(f"{name:<11}  {visible(str(value))}"))
