"""``dead resend`` and ``dead discard``."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from telegram_connector.bridge import DeadLetters
from telegram_connector.bridge.deadletters import Outcome, Resent
from telegram_connector.cli.dead.choice import (
    SEQS,
    YES,
    chosen,
    end_with_missing,
    filters,
    numbers,
    opened,
    some,
)
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import EXIT_FAILED, complain, confirmed, interruptible, progress, utc_now
from telegram_connector.cli.settings import nats_settings
from telegram_connector.envelope import is_chat
from telegram_connector.letters import Row, discard_one, resend_one, rows_of
from telegram_connector.marks import Change, Leave, Refuse
from telegram_connector.wording import counted


def _chat(text: str) -> str:
    if not is_chat(text):
        raise click.BadParameter("neither a decimal chat id nor @name")
    return text


@click.command(
    short_help="Publish dead letters anew, one by one, in order.",
    epilog=foot(
        "dead resend 42",
        "dead resend --reason refused --plain",
        "dead resend --from-chat -100111 --chat -100222 --rate 1 --yes",
        done="all that were chosen are resent, or were before",
        failed="some failed, were refused, are not there, or are to go",
    ),
)
@SEQS
@filters("--from-chat")
@click.option("--all", "everything", is_flag=True, help="All that are open.")
@click.option("--chat", type=_chat, metavar="CHAT", help="Send to this chat instead of their own.")
@click.option("--plain", is_flag=True, help="Send the plain text of the markup, without a parse mode.")
@click.option("--again", is_flag=True, help="Those that were resent or discarded, too, as new messages.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many a second.")
@YES
def resend(
    seqs: tuple[int, ...],
    everything: bool,
    chat: str | None,
    plain: bool,
    again: bool,
    rate: float | None,
    yes: bool,
    **given: Any,
) -> None:
    """Publish dead letters anew, one by one, in the order of their death.

    SEQ, filters or --all say which ones.

    Each copy is a message of its own with the msg_id OLD.r1 (a later one OLD.r2), without expires_at, and the
    letter is marked as resent. Safe to interrupt (once: after the letter at hand) and to run again: what was
    resent stays so, and what was cut off is finished under the same id. Two operators at once send nothing
    twice. Only --again, run again, sends again.

    Refused are letters with the reason ambiguous (see ledger resolve), and those that are no envelope, unless
    --chat mends it. In another chat, topic and message replied to are left out. Of what is resent some may be
    refused by Telegram again, and is then a new dead letter.
    """
    wanted = some(chosen(seqs, **given), everything)
    settings = nats_settings()
    if {"*", ">"} & set(settings.subject.split(".")):
        raise click.UsageError("TG_SUBJECT has a wildcard: set it to the one subject to publish to")
    change = Change(chat, plain)
    now = utc_now()
    tally: Counter[str] = Counter()
    with opened("dead resend", settings) as letters:
        ready, missing, refused = [], set(wanted.seqs), defaultdict[str, list[int]](list)
        for row in rows_of(letters, wanted, now):
            missing.discard(row.letter.seq)
            step = row.step(change, again)
            if isinstance(step, Leave):
                tally["left alone"] += 1
            elif isinstance(step, Refuse):
                tally["refused"] += 1
                refused[step.why].append(row.letter.seq)
            else:
                ready.append(row.light())
        for why, of in refused.items():
            complain("dead resend", f"{numbers(of)}: {why}")
        how = (f" to {chat}" if chat else "") + (" as plain text" if plain else "")
        if ready and not confirmed(f"Resend {counted(len(ready), 'dead letter')}{how}?", yes):
            _end("nothing was resent")
        try:
            _resend_each(letters, ready, change, again, rate, tally)
        finally:
            tally["to go"] += len(ready) - tally["done"]
            click.echo(_summary(tally))
    end_with_missing("dead resend", missing)
    if tally["refused"] or tally["to go"]:
        sys.exit(EXIT_FAILED)


_SAID = {
    "resent": "resent",
    "already": "sent already, now marked",
    "left alone": "left alone (resent or discarded before)",
    "refused": "refused",
    "gone": "gone meanwhile",
    "to go": "to go: run it again",
}


def _summary(tally: Counter[str]) -> str:
    return "; ".join(f"{tally[n]:,} {said}" for n, said in _SAID.items() if tally[n] or n == "resent")


def _resend_each(
    letters: DeadLetters,
    rows: Sequence[Row],
    change: Change,
    again: bool,
    rate: float | None,
    tally: Counter[str],
) -> None:
    with interruptible() as stop, progress("resending", len(rows)) as step:
        for row in rows:
            due = time.monotonic() + (1 / rate if rate else 0)
            _count(row.letter.seq, resend_one(letters, row, change, again), tally)
            tally["done"] += 1
            step()
            if row is not rows[-1] and stop.wait(due - time.monotonic()):
                return


def _count(seq: int, outcome: Outcome | None, tally: Counter[str]) -> None:
    match outcome:
        case None:
            tally["gone"] += 1
        case Resent(already=True):
            tally["already"] += 1
        case Resent():
            tally["resent"] += 1
        case Leave():
            tally["left alone"] += 1
        case Refuse(why):
            tally["refused"] += 1
            complain("dead resend", f"{seq}: {why}")


@click.command(
    short_help="Put dead letters aside: not listed, not resent.",
    epilog=foot(
        'dead discard 42 --why "said by phone"',
        "dead discard --reason expired --older-than 3d --yes",
        done="all that were chosen are put aside",
        failed="some failed, are not there, or somebody else is at them",
    ),
)
@SEQS
@filters("--chat", "--from-chat")
@click.option("--all", "everything", is_flag=True, help="All that are not discarded.")
@click.option("--why", help="For the record.")
@click.option(
    "--purge", is_flag=True, help="Delete them from the stream, for good; wants the right to do so."
)
@YES
def discard(
    seqs: tuple[int, ...], everything: bool, why: str | None, purge: bool, yes: bool, **given: Any
) -> None:
    """Put dead letters aside: list shows them no more, and resend leaves them alone.

    SEQ, filters or --all say which ones. They stay in the stream, with who discarded them when and why, until
    it drops them after 30 days: show and list --all show them, resend --again sends them all the same. With
    --purge they are deleted, those that were discarded before included.
    """
    wanted, now = some(chosen(seqs, **given), everything), utc_now()
    with opened("dead discard", nats_settings()) as letters:
        rows = [
            row.light()
            for row in rows_of(letters, wanted, now)
            if purge or row.status != "discarded" or row.letter.seq in wanted.seqs
        ]
        missing = wanted.seqs - {row.letter.seq for row in rows}
        done = 0
        if rows:
            verb = "Delete" if purge else "Discard"
            unsent = sum(row.status != "resent" for row in rows)
            if not confirmed(
                f"{verb} {counted(len(rows), 'dead letter')}, {unsent:,} of them not resent?", yes
            ):
                _end("nothing was discarded")
            with interruptible() as stop, progress("discarding", len(rows)) as step:
                for row in rows:
                    if stop.wait():
                        break
                    if discard_one(letters, row, why, purge):
                        done += 1
                    else:
                        complain("dead discard", f"{row.letter.seq}: somebody else is at it; look again")
                    step()
    click.echo(f"{counted(done, 'dead letter')} {'deleted' if purge else 'discarded'}")
    end_with_missing("dead discard", missing)
    if done < len(rows):
        sys.exit(EXIT_FAILED)


def _end(words: str) -> NoReturn:
    click.echo(words, err=True)
    sys.exit(EXIT_FAILED)
