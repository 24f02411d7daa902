"""``ledger resolve``: an operator's word on what is in doubt.

The record is changed first, by compare-and-set, so that of two operators one goes on; what follows from the
word comes after it, and is done again when the same command is run again.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime

import click

from telegram_connector.alerts import event_bytes
from telegram_connector.bridge.archive import Archive, Kept
from telegram_connector.cli.ledger.desk import KEY, YES, opened, record_at
from telegram_connector.cli.ledger.words import doubt, named, story
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import (
    EXIT_FAILED,
    complain,
    confirmed,
    operator,
    timestamp,
    utc_now,
)
from telegram_connector.cli.settings import nats_settings
from telegram_connector.envelope import is_chat
from telegram_connector.errors import BridgeError, LedgerError
from telegram_connector.record import IN_FLIGHT, Record, chat_hash
from telegram_connector.resolution import (
    ABANDONED_ACK_WAITS,
    CANCEL,
    SEND_AGAIN,
    SENT,
    Again,
    Resolution,
    again,
    in_doubt,
    resolved,
    unfinished,
)
from telegram_connector.settings import NatsSettings

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
    settings, now = nats_settings(), utc_now()
    if how == SEND_AGAIN and {"*", ">"} & set(settings.subject.split(".")):
        raise click.UsageError("TG_SUBJECT has a wildcard: set it to the one subject to publish to")
    with opened(COMMAND, settings) as archive:
        found, record = record_at(archive, key)
        _allowed(record, how, message_id, now, settings)
        copy = _copy(archive, record, now) if how == SEND_AGAIN else None
        hashed_chat = record.chat_hash if chat is None else chat_hash(record.bot, chat)
        if message_id is not None:
            _not_anothers(archive, record, message_id, hashed_chat)
        if not confirmed(_question(record, how, copy, message_id), yes):
            click.echo("nothing was changed", err=True)
            sys.exit(EXIT_FAILED)
        if not unfinished(record, how, message_id):
            found, record = _say(archive, found, record, how, message_id, settings)
        with suppress(BridgeError):  # without it, the letter is found among the others and put aside by hand
            why = f"ledger resolve: {record.resolution}"
            archive.put_aside(record, operator(), lambda: timestamp(utc_now()), why)
        if copy is not None:
            click.echo(_publish(archive, record, copy))
        elif message_id is not None:
            click.echo(_link(archive, found, record, hashed_chat))
        else:
            click.echo(f"{named(record)}: {'taken as sent' if how == SENT else 'cancelled'}")


def _one_of(sent: bool, send_again: bool, cancel: bool) -> Resolution:
    said: list[Resolution] = [
        how for how, is_said in ((SENT, sent), (SEND_AGAIN, send_again), (CANCEL, cancel)) if is_said
    ]
    if len(said) != 1:
        raise click.UsageError("say one of --sent, --send-again and --cancel")
    return said[0]


def _allowed(
    record: Record, how: Resolution, message_id: int | None, now: datetime, settings: NatsSettings
) -> None:
    if in_doubt(record, now, settings.ack_wait_seconds) or unfinished(record, how, message_id):
        return
    if record.status == IN_FLIGHT:
        seconds = ABANDONED_ACK_WAITS * settings.ack_wait_seconds
        raise LedgerError(
            f"its send began at {record.updated_at}, and a connector may be waiting for the answer: it is in "
            f"doubt {seconds:g} s after that"
        )
    raise LedgerError(f"nothing is in doubt. {story(record, now, settings.ack_wait_seconds)}")


def _copy(archive: Archive, record: Record, now: datetime) -> Again:
    original = archive.original(record)
    if original is None:
        raise LedgerError(
            f"its original is in the streams no more (it was sequence {record.stream_seq}), so it cannot be "
            "sent again from here: publish it anew under another msg_id, and resolve this one with --cancel. "
            "Nothing was changed"
        )
    return again(original.payload, original.headers, now.timestamp())


def _not_anothers(archive: Archive, record: Record, message_id: int, hashed_chat: str) -> None:
    other = archive.taken_by(record, message_id, hashed_chat)
    if other is not None:
        raise LedgerError(
            f"message {message_id} in that chat is {other.msg_id}: another number? Nothing changed"
        )


def _question(record: Record, how: Resolution, copy: Again | None, message_id: int | None) -> str:
    if unfinished(record, how, message_id):
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


def _say(
    archive: Archive,
    found: Kept[Record],
    record: Record,
    how: Resolution,
    message_id: int | None,
    settings: NatsSettings,
) -> tuple[Kept[Record], Record]:
    """Write the operator's word into the record, and tell whoever listens."""
    now = utc_now()
    settled = resolved(record, how, operator(), timestamp(now), message_id)
    changed = archive.change(found, settled)
    if changed is None:
        raise LedgerError("somebody else was first; nothing was changed here. Look again with: ledger show")
    facts = {"key": record.key, "msg_id": record.msg_id, "resolution": how, "by": settled.resolved_by}
    text = f"{settled.resolved_by} resolved msg_id={record.msg_id[:200]}, which was in doubt: {how}"
    with suppress(BridgeError):  # nobody need listen
        archive.announce(event_bytes(settings.durable, "ledger_resolved", text, facts, now.timestamp()))
    return changed, settled


def _publish(archive: Archive, record: Record, copy: Again) -> str:
    try:
        sequence = archive.publish_again(copy.payload, copy.headers)
    except BridgeError as error:
        complain(
            COMMAND,
            f"the record says send-again now, but its copy may not be published: {error}; run the same "
            "command again, which does no harm",
        )
        sys.exit(EXIT_FAILED)
    without = f", without its expires_at {copy.expired}" if copy.expired else ""
    return f"{named(record)}: published again as sequence {sequence}{without}"


def _link(archive: Archive, found: Kept[Record], record: Record, hashed_chat: str) -> str:
    try:
        archive.store_link(found, hashed_chat)
    except BridgeError as error:
        complain(
            COMMAND,
            f"it is taken as sent now, but its link is not stored: {error}; run the same command again",
        )
        sys.exit(EXIT_FAILED)
    return f"{named(record)}: taken as sent, message {record.message_id}"
