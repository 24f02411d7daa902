"""The commands. Signals, logging set-up and the process's environment are this package's business alone."""

from __future__ import annotations

import click

from telegram_connector import __version__
from telegram_connector.cli.chats import chats
from telegram_connector.cli.check import check
from telegram_connector.cli.completion import completion
from telegram_connector.cli.console import console
from telegram_connector.cli.dead import dead
from telegram_connector.cli.demo import demo
from telegram_connector.cli.ledger import ledger
from telegram_connector.cli.lint import lint
from telegram_connector.cli.manual import Sections
from telegram_connector.cli.pause import pause, resume
from telegram_connector.cli.provision import provision
from telegram_connector.cli.publish import publish
from telegram_connector.cli.run import run
from telegram_connector.cli.sandbox import sandbox
from telegram_connector.cli.status import status


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Exit codes:
  0   done
  1   failed
  2   wrong usage
  78  settings missing or wrong
What each command means by them: COMMAND --help, and docs/operations.md.""",
)
@click.version_option(__version__, prog_name="telegram-connector")
def main() -> None:
    """The one Telegram sender of a fleet: relays envelopes from NATS JetStream to the Bot API.

    Settings come from environment variables, which the README lists; each command needs those of the servers
    that it talks to. COMMAND --help says what it does, with examples. No command prints the bot token or
    other secrets, and none but those that say so a message's text.
    """


main.add_sections(
    ("Worker", (run, check, provision)),
    ("Operating", (status, pause, resume, dead, ledger, console)),
    ("Publishing", (publish, lint, chats)),
    ("Trying it out", (demo, sandbox)),
    ("Shell", (completion,)),
)
