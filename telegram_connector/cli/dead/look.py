"""``dead list`` and ``dead show``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from telegram_connector.ages import age
from telegram_connector.bridge.deadletters import UNMARKED
from telegram_connector.cli.check import printable
from telegram_connector.cli.dead.choice import (
    JSON,
    chosen,
    end_with_missing,
    filters,
    opened,
    seq,
)
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import show_json_array, show_table, timestamp, utc_now
from telegram_connector.cli.settings import nats_settings
from telegram_connector.letters import DEFAULT_CHAT, Row, rows_of
from telegram_connector.wording import counted, visible


@click.command(
    "list",
    short_help="List dead letters, oldest first.",
    epilog=foot(
        "dead list",
        "dead list --reason refused --newer-than 2h",
        "dead list --chat -1001234567890 --json | jq -r '.[].msg_id'",
        done="listed, also when there is none",
        failed="NATS cannot be asked, or refuses",
    ),
)
@filters("--chat", "--from-chat")
@click.option("--all", "everything", is_flag=True, help="Those that were discarded, too.")
@click.option("--text", is_flag=True, help="Show the messages' texts.")
@JSON
def list_(everything: bool, text: bool, as_json: bool, **given: Any) -> None:
    """List dead letters in the order of their death, without those that were discarded.

    With --json an array of objects: seq, reason, msg_id, chat (null: the default chat), kind, error_code,
    description, attempts, dead_at, resent (true or false), status (open, claimed, resent, discarded) and,
    where something was done, by, at, why and resent_as (the copy's msg_id).
    """
    wanted, now = chosen(**given), utc_now()
    with opened("dead list", nats_settings()) as letters:
        hidden = 0

        def shown() -> Iterator[Row]:
            nonlocal hidden
            for row in rows_of(letters, wanted, now):
                if row.status == "discarded" and not everything:
                    hidden += 1
                else:
                    yield row

        if as_json:
            show_json_array(_object(row, text) for row in shown())
            return
        rows = list(shown())
        if rows:
            show_table(
                [*_HEADINGS, *(["TEXT"] if text else [])],
                ([*_cells(row, now), *([row.letter.text or ""] if text else [])] for row in rows),
            )
        click.echo(_counts(rows, hidden), err=True)


_HEADINGS = ("SEQ", "AGE", "REASON", "CODE", "CHAT", "KIND", "TRIES", "STATUS", "MSG_ID", "DESCRIPTION")


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    letter = row.letter
    return (
        str(letter.seq),
        age(letter.dead_at, now),
        letter.reason,
        str(letter.error_code or ""),
        letter.chat or DEFAULT_CHAT,
        letter.kind or "",
        "" if letter.attempts is None else str(letter.attempts),
        row.status,
        letter.msg_id or "",
        letter.description,
    )


def _object(row: Row, text: bool) -> dict[str, Any]:
    letter, mark = row.letter, row.mark
    item: dict[str, Any] = {
        "seq": letter.seq,
        "reason": letter.reason,
        "msg_id": letter.msg_id,
        "chat": letter.chat,
        "kind": letter.kind,
        "error_code": letter.error_code,
        "description": letter.description,
        "attempts": letter.attempts,
        "dead_at": timestamp(letter.dead_at),
        "resent": row.status == "resent",
        "status": row.status,
    }
    if mark is not None:
        item |= {"by": mark.by, "at": mark.at, "why": mark.why, "resent_as": mark.msg_id}
    if text:
        item["text"] = letter.text
    return item


def _counts(rows: Sequence[Row], hidden: int) -> str:
    reasons = Counter(row.letter.reason for row in rows)
    states = Counter(row.status for row in rows if row.status != "open")
    parts = [f"{number:,} {name}" for name, number in (reasons + Counter()).most_common()]
    words = counted(len(rows), "dead letter") + (f": {', '.join(parts)}" if parts else "")
    for name, number in states.most_common():
        words += f"; {number:,} {name}"
    return words + (f"; {hidden:,} discarded not shown (--all)" if hidden else "")


@click.command(
    short_help="Show dead letters in full: why, headers, what was done.",
    epilog=foot(
        "dead show 41 42",
        "dead show 42 --text",
        "dead show 42 --raw > envelope.json",
        done="shown",
        failed="one is not there, or NATS cannot be asked, or refuses",
    ),
)
@click.argument("seqs", nargs=-1, required=True, type=seq, metavar="SEQ...")
@click.option("--text", is_flag=True, help="Show the message's text.")
@click.option(
    "--raw", is_flag=True, help="Of one letter the publisher's bytes, text included, and nothing else."
)
@JSON
def show(seqs: tuple[int, ...], text: bool, raw: bool, as_json: bool) -> None:
    """Show dead letters in full: why, Telegram's words, headers, what was done about it.

    SEQ is the letter's number in dead list. With --json the objects of list, with stream_seq (where the
    original was) and headers.
    """
    if raw and (as_json or text or len(seqs) > 1):
        raise click.UsageError("--raw goes with one SEQ and nothing else")
    with opened("dead show", nats_settings()) as letters:
        marks = letters.marks()
        found = {seq: letter for seq in seqs if (letter := letters.letter(seq)) is not None}
        rows = [
            Row(letters.body(letter) if text or raw else letter, marks.get(seq, UNMARKED))
            for seq, letter in found.items()
        ]
    if raw:
        for row in rows:
            click.echo(row.letter.payload, nl=False)
    elif as_json:
        show_json_array(
            {
                **_object(row, text),
                "stream_seq": row.letter.stream_seq,
                "headers": dict(row.letter.headers),
            }
            for row in rows
        )
    else:
        click.echo(printable("\n\n".join("\n".join(_in_full(row, text)) for row in rows)), nl=bool(rows))
    end_with_missing("dead show", set(seqs) - found.keys())


def _in_full(row: Row, text: bool) -> Iterator[str]:
    letter, mark = row.letter, row.mark
    code = f" {letter.error_code}" if letter.error_code else ""
    yield f"{letter.seq}  {visible(letter.reason)}{code}  {visible(letter.description)}".rstrip()
    if mark is None:
        yield "  status      open"
    else:
        copy = f" as {visible(mark.msg_id)}" if mark.msg_id and mark.state != "discarded" else ""
        why = f": {visible(mark.why)}" if mark.why and mark.state == "discarded" else ""
        yield f"  status      {mark.state}{copy} by {visible(mark.by)} at {mark.at}{why}"
    yield f"  msg_id      {visible(letter.msg_id or '')}"
    yield f"  chat        {visible(letter.chat or DEFAULT_CHAT)}"
    yield f"  kind        {visible(letter.kind or '')}".rstrip()
    yield f"  dead since  {timestamp(letter.dead_at)}"
    for name, value in letter.headers.items():
        yield f"  {visible(name)}: {visible(value)}"
    omitted = letter.body_omitted and not letter.payload
    if omitted:
        yield "  (its body did not fit; show --text looks for it in the outbound stream)"
    if text and not omitted:
        yield "  text"
        yield from (f"    {visible(line)}" for line in (letter.text or "(none that can be read)").split("\n"))
