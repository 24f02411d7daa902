"""``publish``: one envelope, or many, from the command line."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import BinaryIO

import click

from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import nats_settings, refuse
from telegram_connector.envelope import TelegramOutbound, decode
from telegram_connector.errors import EnvelopeError, PublishFailed, SettingsError
from telegram_connector.publisher import PublishAck, Publisher, reads_well

TIMEOUT_SECONDS = 5.0


@click.command(
    short_help="Publish a message, or a file of envelopes.",
    epilog=foot(
        'publish --chat @ops_room --kind alert "disk full"',
        "publish --chat -1001234567890 --parse-mode HTML - < message.html",
        "publish --envelopes envelopes.jsonl",
        done="stored, or there already",
        failed="refused or not stored; of a file, those before it are stored",
    ),
)
@click.argument("text", required=False)
@click.option("--chat", help="Chat id or @name; the connector's default chat without.")
@click.option("--parse-mode", help="HTML or MarkdownV2; the text is sent as it is without.")
@click.option("--kind", help="info, alert or trade: an attribute of logs.")
@click.option("--thread", "message_thread_id", type=int, help="Topic within the chat.")
@click.option("--silent", is_flag=True, help="Deliver without a sound.")
@click.option("--msg-id", help="Idempotency key; a random one without.")
@click.option("--no-check", is_flag=True, help="Publish also what Telegram would refuse for its text.")
@click.option(
    "--envelopes", type=click.File("rb"), help="Instead of TEXT: a file of envelopes, a JSON object per line."
)
def publish(
    text: str | None,
    chat: str | None,
    parse_mode: str | None,
    kind: str | None,
    message_thread_id: int | None,
    silent: bool,
    msg_id: str | None,
    no_check: bool,
    envelopes: BinaryIO | None,
) -> None:
    """Publish TEXT (or standard input, with -) to the outbound stream.

    Needs NATS credentials that may publish (TELEGRAM_PUBLISHER in deploy/), no bot token, and no connector
    that runs: one that starts later sends it. Prints the msg_id and the stream's sequence of each. The same
    msg_id within the stream's duplicate window, 5 minutes, is stored once. What Telegram would refuse for its
    length or its markup is refused here, in its words, before anything is published.
    """
    if (text is None) == (envelopes is None):
        raise click.UsageError("give either TEXT or --envelopes")
    settings = nats_settings()
    try:
        if envelopes is not None:
            outbound = list(_read(envelopes, no_check))
        else:
            body = sys.stdin.read() if text == "-" else text or ""
            outbound = [
                TelegramOutbound(
                    msg_id=msg_id or str(uuid.uuid4()),
                    chat=chat,
                    text=body,
                    parse_mode=parse_mode,
                    kind=kind,
                    message_thread_id=message_thread_id,
                    disable_notification=True if silent else None,
                )
            ]
        with Publisher(settings, check=not no_check, name="telegram_connector publish") as publisher:
            publisher.publish_many(outbound, TIMEOUT_SECONDS, progress=_say)
    except SettingsError as error:
        refuse(error)
    except (EnvelopeError, PublishFailed) as error:
        click.echo(f"telegram-connector publish: {error}", err=True)
        sys.exit(1)


def _say(envelope: TelegramOutbound, ack: PublishAck) -> None:
    note = " (a duplicate: it was there already)" if ack.duplicate else ""
    click.echo(f"{envelope.msg_id} stored as sequence {ack.seq}{note}")


def _read(lines: BinaryIO, no_check: bool) -> Iterator[TelegramOutbound]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                envelope = decode(line)
                if not no_check:
                    reads_well(envelope)
                yield envelope
            except EnvelopeError as error:
                raise EnvelopeError(f"line {number}, {error.field}".rstrip(", "), error.reason) from None
