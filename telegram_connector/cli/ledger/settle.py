"""``ledger resolve``: an operator's word on what is in doubt."""

from __future__ import annotations

import sys

import click

from telegram_connector.cli.ledger.desk import KEY, YES, opened
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import EXIT_FAILED, confirmed, operator
from telegram_connector.cli.settings import nats_settings
from telegram_connector.envelope import is_chat
from telegram_connector.resolution import CANCEL, SEND_AGAIN, SENT, Resolution
from telegram_connector.resolver import Case, Resolver
from telegram_connector.story import doubt, named

COMMAND = "ledger resolve"


@click.command(
    short_help="Settle a message of which nobody knows whether it was sent.",
    epilog=foot(
        "ledger resolve 63484637 --sent --message-id 4711",
        "ledger resolve 63484637 --send-again --yes",
        "ledger resolve 63484637 --cancel",
        done="settled",
        failed="not in doubt, not there, or only half done: run it again",
    ),
)
@KEY
@click.option("--sent", is_flag=True, help="It is in the chat: not sent again.")
@click.option("--send-again", is_flag=True, help="Send it again: shows twice if it was sent after all.")
@click.option("--cancel", is_flag=True, help="Whether it was sent or not: not sent again.")
@click.option("--message-id", type=click.IntRange(1), help="With --sent: its id in Telegram, for replies.")
@click.option(
    "--chat", metavar="ID", help="With --message-id: the chat's decimal id, where it was sent to a @name."
)
@YES
def resolve(
    key: str,
    sent: bool,
    send_again: bool,
    cancel: bool,
    message_id: int | None,
    chat: str | None,
    yes: bool,
) -> None:
    """Settle a message of which nobody knows whether it was sent.

    Look into the chat first. KEY is as ledger list --in-doubt shows it: nothing else can be settled. The
    record keeps who said what and when.

    --send-again publishes the original once more, under its own msg_id; it is looked for in the outbound
    stream and among the dead letters. An expires_at that is past is left out. Where it was interrupted, the
    same command goes on.
    """
    how = _one_of(sent, send_again, cancel)
    if message_id is not None and how != SENT:
        raise click.UsageError("--message-id goes with --sent")
    if chat is not None and (message_id is None or not is_chat(chat) or chat.startswith("@")):
        raise click.UsageError("--chat is a decimal chat id, and goes with --message-id")
    settings = nats_settings()
    if how == SEND_AGAIN and {"*", ">"} & set(settings.subject.split(".")):
        raise click.UsageError("TG_SUBJECT has a wildcard: set it to the one subject to publish to")
    with opened(COMMAND, settings) as archive:
        resolver = Resolver(archive, settings, operator())
        case = resolver.case(archive.one(key), how, message_id, chat)
        if not confirmed(_question(case), yes):
            click.echo("nothing was changed", err=True)
            sys.exit(EXIT_FAILED)
        click.echo(resolver.settle(case))


def _one_of(sent: bool, send_again: bool, cancel: bool) -> Resolution:
    said: list[Resolution] = [
        how for how, is_said in ((SENT, sent), (SEND_AGAIN, send_again), (CANCEL, cancel)) if is_said
    ]
    if len(said) != 1:
        raise click.UsageError("say one of --sent, --send-again and --cancel")
    return said[0]


def _question(case: Case) -> str:
    record, how, copy = case.record, case.how, case.copy
    if case.unfinished:
        about = f"{named(record)}: {record.resolved_by} said {how} at {record.resolved_at}"
        if copy is None:
            return f"{about}; its link is not stored. Store it?"
        return f"{about}, and it may be published already; a copy too many is not sent. Publish it again?"
    about = f"{named(record)}, {doubt(record)}."
    if copy is None:
        return f"{about} {'Take it as sent' if how == SENT else 'Cancel it'}: it is never sent again?"
    expired = f" Its expires_at {copy.expired} is past and is left out." if copy.expired else ""
    return (
        f"{about} Nobody knows whether Telegram has it. IF IT HAS, THE CHAT WILL SHOW IT TWICE."
        f"{expired} Send it again?"
    )
