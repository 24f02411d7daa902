"""The commands. Signals, logging set-up and the process's environment are this package's business alone."""

from __future__ import annotations

import click

from telegram_connector import __version__
from telegram_connector.cli.chats import chats
from telegram_connector.cli.check import check
from telegram_connector.cli.dead import dead
from telegram_connector.cli.demo import demo
from telegram_connector.cli.ledger import ledger
from telegram_connector.cli.lint import lint
from telegram_connector.cli.pause import pause, resume
from telegram_connector.cli.provision import provision
from telegram_connector.cli.publish import publish
from telegram_connector.cli.run import run
from telegram_connector.cli.sandbox import sandbox
from telegram_connector.cli.status import status


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="telegram-connector")
def main() -> None:
    """The one Telegram sender of a fleet: relays envelopes from NATS JetStream to the Bot API.

    Settings come from environment variables; the README lists them. Exit codes: 0 done or dormant, 1 failed,
    2 wrong usage, 78 settings missing or wrong.
    """


for command in (
    run,
    demo,
    check,
    provision,
    publish,
    status,
    pause,
    resume,
    dead,
    ledger,
    chats,
    lint,
    sandbox,
):
    main.add_command(command)
