"""``ledger``: what became of each message, what is in doubt, and an operator's word on it."""

from __future__ import annotations

import click

from telegram_connector.cli.ledger.keep import export, forget
from telegram_connector.cli.ledger.look import link, list_, show, why
from telegram_connector.cli.ledger.settle import resolve


@click.group(short_help="Say what became of messages, settle what is in doubt.")
def ledger() -> None:
    """What became of each message, and what is in doubt: look, resolve, forget, export.

    A connector with TG_LEDGER=kv writes a record of each message to the bucket telegram_ledger, under a KEY
    of 64 hexadecimal digits, of which the first few are enough; and links, from Telegram's message id to what
    it was, to telegram_links. There is no text of a message in them and no chat id in the clear. Needs NATS
    with an operator's rights (TELEGRAM_OPERATOR in deploy/nats-permissions.conf) and no bot token.

    In doubt is what is send_ambiguous, and what is send_in_flight for more than twice TG_ACK_WAIT_SECS: the
    connector that sent it is gone. Under TG_ON_AMBIGUOUS=retry a connector tries it again by itself, unless
    it is resolved before.
    """


for command in (list_, show, resolve, forget, export, link, why):
    ledger.add_command(command)
