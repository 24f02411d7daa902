"""``ledger forget`` and ``export``: for those who ask that nothing be kept, or what is."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from telegram_connector.bridge.archive import Archive, Kept
from telegram_connector.cli.ledger.desk import KEYS, YES, Readable, opened
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import (
    EXIT_FAILED,
    complain,
    confirmed,
    interruptible,
    progress,
    show_json,
)
from telegram_connector.cli.settings import nats_settings
from telegram_connector.links import Link
from telegram_connector.record import CANCELLED, SENT, TERMINAL, Record, shown
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET
from telegram_connector.wording import counted

_OVER = (SENT, TERMINAL, CANCELLED)


@click.command(
    short_help="Delete records and their links, for good.",
    epilog=foot(
        "ledger forget 63484637",
        "ledger forget --route customer-17 --yes",
        done="forgotten, or there was nothing to forget",
        failed="one is not there, some are left, or NATS refuses",
    ),
)
@KEYS
@click.option("--route", help="All of this route.")
@YES
def forget(keys: tuple[str, ...], route: str | None, yes: bool) -> None:
    """Delete records and the links of their messages, for good.

    Of what is forgotten a copy that is published, or handed over by NATS once more, is sent again: the ledger
    is what prevents that. A user's reply to it cannot be told any more. Records that cannot be read may be
    forgotten too, by KEY.
    """
    if bool(keys) == (route is not None):
        raise click.UsageError("say which ones: KEY, or --route alone")
    settings = nats_settings()
    with opened("ledger forget", settings) as archive:
        if route is not None:
            records = [kept for kept in archive.records() if kept.value and kept.value.route_id == route]
            links = [kept for kept in archive.links() if kept.value and kept.value.route_id == route]
        else:
            records = list({kept.key: kept for kept in map(archive.one, keys)}.values())
            links = [link for kept in records if kept.value for link in archive.links_of(kept.value)]
        what = f"{counted(len(records), 'record')} and {counted(len(links), 'link')}"
        if not records and not links:
            click.echo("nothing to forget")
            return
        if not confirmed(f"Forget {what}{_open(records)}?", yes):
            click.echo("nothing was forgotten", err=True)
            sys.exit(EXIT_FAILED)
        done = _forget(archive, records, links)
    click.echo(f"{done:,} of {what} forgotten" if done < len(records) + len(links) else f"{what} forgotten")
    if done < len(records) + len(links):
        sys.exit(EXIT_FAILED)


def _open(records: Sequence[Kept[Record]]) -> str:
    count = sum(kept.value is None or kept.value.status not in _OVER for kept in records)
    return f", {count:,} of them not over: what is handed over once more is sent again" if count else ""


def _forget(archive: Archive, records: Sequence[Kept[Record]], links: Sequence[Kept[Link]]) -> int:
    """Delete; what was interrupted is found again by the same command, since the records go last."""
    done = 0
    places = [(LINKS_BUCKET, link.key, link.revision) for link in links]
    places += [(LEDGER_BUCKET, record.key, record.revision) for record in records]
    with interruptible() as stop, progress("forgetting", len(places)) as step:
        for bucket, key, revision in places:
            if stop.wait():
                complain("ledger forget", "interrupted; run it again for the rest")
                break
            if archive.forget(bucket, key, revision):
                done += 1
            else:
                complain("ledger forget", f"{key}: somebody else has written it meanwhile; look again")
            step()
    return done


@click.command(
    short_help="Write out all that is kept, as JSON lines.",
    epilog=foot(
        "ledger export > ledger.jsonl",
        "ledger export --route customer-17",
        done="all was written",
        failed="some cannot be read, or NATS cannot be asked, or refuses",
    ),
)
@click.option("--route", help="Of this route alone.")
def export(route: str | None) -> None:
    """Write out all that is kept: a JSON object per record and per link, one a line.

    Each has "type" (record or link) and "key", and all fields. A message has two links, one by Telegram's id
    and one by the publisher's.
    """
    readable = Readable("ledger export")
    with opened("ledger export", nats_settings()) as archive:
        for record in readable.records(archive.records()):
            if route in (None, record.route_id):
                show_json({"type": "record", **shown(record)})
        for key, link in readable.links(archive.links()):
            if route in (None, link.route_id):
                show_json({"type": "link", "key": key, **msgspec.structs.asdict(link)})
    readable.end()
