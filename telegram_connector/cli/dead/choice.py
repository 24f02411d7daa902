"""Which dead letters are meant, and what is known about each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from telegram_connector.ages import Ages
from telegram_connector.bridge import DeadLetters, NatsClient
from telegram_connector.cli.records import (
    EXIT_FAILED,
    age_options,
    complain,
    one_line_errors,
    operator,
    timestamp,
    utc_now,
)
from telegram_connector.letters import DEFAULT_CHAT, REASONS, Filter
from telegram_connector.settings import NatsSettings

SHOWN = 10  # sequences in a line about many

F = TypeVar("F", bound=Callable[..., Any])


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
