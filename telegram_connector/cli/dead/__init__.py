"""``dead``: what could not be delivered, listed, explained, resent or discarded."""

from __future__ import annotations

import click

from telegram_connector.cli.dead.look import list_, show
from telegram_connector.cli.dead.treat import discard, resend


@click.group(short_help="List, show, resend, discard what was not delivered.")
def dead() -> None:
    """What could not be delivered: list it, look at it, resend it, discard it.

    Dead letters are in the stream TELEGRAM_DEAD for 30 days, and numbered there: SEQ. What was done about
    which is kept in the bucket telegram_state. Needs NATS with an operator's rights (TELEGRAM_OPERATOR in
    deploy/nats-permissions.conf) and no bot token. No message's text is shown unless asked for.

    Filters combine: all of them must hold; of one that is given several times any value.
    """


for command in (list_, show, resend, discard):
    dead.add_command(command)
