"""Which dead letters are meant, and what is known about each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click

from telegram_connector.bridge import DeadLetters, NatsClient
from telegram_connector.bridge.deadletters import UNMARKED, Marked
from telegram_connector.cli.records import (
    EXIT_FAILED,
    Ages,
    age_options,
    complain,
    one_line_errors,
    operator,
    timestamp,
    utc_now,
)
from telegram_connector.deadletter import Letter
from telegram_connector.marks import Mark
from telegram_connector.settings import NatsSettings

REASONS = ("refused", "unreadable", "gave_up", "ambiguous", "expired", "conflict")
SHOWN = 10  # sequences in a line about many
DEFAULT_CHAT = "default"  # how letters are asked for that named no chat

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Filter:
    """Which letters are meant; what is empty excludes none."""

    seqs: frozenset[int]
    reasons: frozenset[str]
    chats: frozenset[str]
    kinds: frozenset[str]
    msg_ids: frozenset[str]
    ages: Ages

    def __bool__(self) -> bool:
        return bool(self.seqs or self.reasons or self.chats or self.kinds or self.msg_ids or self.ages)

    def holds(self, letter: Letter, now: datetime) -> bool:
        return (
            (not self.seqs or letter.seq in self.seqs)
            and (not self.reasons or letter.reason in self.reasons)
            and (not self.chats or (letter.chat or DEFAULT_CHAT) in self.chats)
            and (not self.kinds or letter.kind in self.kinds)
            and (not self.msg_ids or letter.msg_id in self.msg_ids)
            and self.ages.hold(letter.dead_at, now)
        )


@dataclass(frozen=True)
class Row:
    """A letter and what was done about it."""

    letter: Letter
    seen: Marked

    @property
    def mark(self) -> Mark | None:
        """The mark, unless it is that of a letter of an earlier stream which had the sequence."""
        mark = self.seen.mark
        return mark if mark is not None and mark.letter == self.letter.stored_at else None

    @property
    def status(self) -> str:
        return "open" if self.mark is None else self.mark.state


def filters(*chat_names: str) -> Callable[[F], F]:
    """Give a command the options that make a `Filter`; `chat_names` are those of the one for chats."""
    options = (
        click.option(
            "--reason", "reasons", multiple=True, type=click.Choice(REASONS), help="Why it is dead."
        ),
        click.option(
            *chat_names,
            "chats",
            multiple=True,
            metavar="CHAT",
            help=f'Chat as the publisher named it; "{DEFAULT_CHAT}" for letters that name none.',
        ),
        click.option("--kind", "kinds", multiple=True, help="info, alert or trade."),
        click.option("--msg-id", "msg_ids", multiple=True, help="The publisher's id."),
        age_options,
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def chosen(seqs: Iterable[int] = (), **given: Any) -> Filter:
    """The filter that the arguments of `filters` make."""
    names = ("reasons", "chats", "kinds", "msg_ids")
    lists = {name: frozenset(given[name]) for name in names}
    return Filter(frozenset(seqs), **lists, ages=Ages(given["older_than"], given["newer_than"]))


def seq(text: str) -> int:
    """A dead letter's number; the type of an argument.

    Raises:
        click.BadParameter: It is none; exit code 2.
    """
    if not re.fullmatch("[1-9][0-9]{0,18}", text):
        raise click.BadParameter(f"{text!r} is no number of a dead letter; dead list has them, under SEQ")
    return int(text)


YES = click.option("--yes", is_flag=True, help="Do not ask.")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON array.")
SEQS = click.argument("seqs", nargs=-1, type=seq, metavar="[SEQ]...")


@contextmanager
def opened(command: str, settings: NatsSettings) -> Iterator[DeadLetters]:
    """Connect; what goes wrong from here on is one line and exit code 1."""
    with one_line_errors(command), NatsClient(settings, f"telegram_connector {command}") as client:
        yield DeadLetters(client, settings, operator(), lambda: timestamp(utc_now()))


def rows_of(letters: DeadLetters, wanted: Filter, now: datetime) -> Iterator[Row]:
    """The letters that are wanted, in stream order; what was done about them is read first."""
    marks = letters.marks()
    found = (
        (letter for seq in sorted(wanted.seqs) if (letter := letters.letter(seq)) is not None)
        if wanted.seqs
        else letters.letters()
    )
    for letter in found:
        if wanted.holds(letter, now):
            yield Row(letter, marks.get(letter.seq, UNMARKED))


def some(wanted: Filter, everything: bool) -> Filter:
    """The filter, once it is sure that "all of them" was not meant by saying nothing."""
    if everything == bool(wanted):
        raise click.UsageError("say which ones: SEQ, filters, or --all alone")
    return wanted


def numbers(seqs: Sequence[int]) -> str:
    """Some sequences in words, the first of many."""
    return ", ".join(map(str, seqs[:SHOWN])) + (f" and {len(seqs) - SHOWN:,} more" if seqs[SHOWN:] else "")


def end_with_missing(command: str, missing: Iterable[int]) -> None:
    """End with exit code 1 where letters that were named are not there."""
    absent = sorted(missing)
    if absent:
        complain(command, f"no such dead letter, or none that the filters hold for: {numbers(absent)}")
        sys.exit(EXIT_FAILED)
