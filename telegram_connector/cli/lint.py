"""``lint``: a message's markup, checked before anybody sends it."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable
from itertools import accumulate

import click

from telegram_connector import markup
from telegram_connector.cli.check import printable
from telegram_connector.cli.manual import foot
from telegram_connector.envelope import decode
from telegram_connector.errors import EnvelopeError

EXIT_REFUSED = 1

_WIDTH = 100  # cells of the source that are shown around a spot
_TAB = 4


@click.command(
    short_help="Check a message's markup as Telegram would.",
    epilog=foot(
        "lint --parse-mode HTML message.html",
        "lint --envelope --preview envelope.json",
        "dead show 42 --raw | telegram-connector lint --envelope -",
        done="Telegram would take it; there may be warnings",
        failed="it would not",
        needs_settings=False,
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--parse-mode",
    type=click.Choice(["HTML", "MarkdownV2", "Markdown", "none"], case_sensitive=False),
    help="How FILE is marked up.",
)
@click.option("--envelope", "is_envelope", is_flag=True, help="FILE is an envelope: its text is checked.")
@click.option("--preview", "with_preview", is_flag=True, help="Also show the message.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object: {ok, fault, warnings, text, entities}."
)
def lint(file: str, parse_mode: str | None, is_envelope: bool, with_preview: bool, as_json: bool) -> None:
    """Check the markup of FILE (or standard input, with -) as Telegram would, without asking it.

    Prints Telegram's own refusal with a mark under the spot, and what Telegram would lose without a word.
    """
    if is_envelope == (parse_mode is not None):
        raise click.UsageError("give either --parse-mode or --envelope")
    if as_json and with_preview:
        raise click.UsageError("give either --json or --preview")
    text, mode = _read(file, is_envelope, parse_mode)
    verdict = markup.judge(text, mode)
    fault = verdict.fault
    if as_json:
        # Escapes keep it whole for every terminal and encoding.
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        name = "<stdin>" if file == "-" else file
        if fault is not None:
            _show(name, text, fault.position, fault.description)
        for notice in verdict.notices:
            _show(name, text, notice.position, f"warning: {notice.words}")
        if with_preview and verdict.sent is not None:
            colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
            click.echo(printable(markup.preview(text, mode, colour)), color=colour)
    if fault is not None:
        sys.exit(EXIT_REFUSED)


def _read(file: str, is_envelope: bool, parse_mode: str | None) -> tuple[str, str | None]:
    with click.open_file(file, "rb") as source:
        payload = source.read()
    if not is_envelope:
        # Bytes that are no UTF-8 stay as halves of pairs, for the check to refuse.
        return payload.decode("utf-8", "surrogateescape"), parse_mode
    try:
        envelope = decode(payload)
    except EnvelopeError as error:
        raise click.UsageError(f"not an envelope: {error}") from None
    return envelope.text, envelope.parse_mode


def _show(name: str, text: str, position: int | None, words: str) -> None:
    if position is None:
        click.echo(printable(markup.harmless(f"{name}: {words}")))
        return
    line, column = markup.line_and_column(text, position)
    begin = position - column + 1
    source, mark = excerpt(text[begin:].split("\n", 1)[0], column - 1)
    click.echo(printable(markup.harmless(f"{name}:{line}:{column}: {words}")))
    click.echo(printable(f"  {source}"))
    click.echo(f"  {mark}")


def excerpt(line: str, index: int) -> tuple[str, str]:
    """What is around the character at `index` of a line, and a line with a caret below it.

    Tabs are shown as spaces, wide characters take two cells and combining ones none; of a long line a window
    is shown.
    """
    shown = [_cell(character) for character in line.rstrip("\r")]
    begin = index - _fitting(reversed(shown[:index]))
    end = index + _fitting(shown[index:])
    left, right = "…" if begin else "", "…" if end < len(shown) else ""
    before = left + "".join(shown[begin:index])
    return before + "".join(shown[index:end]) + right, " " * _cells(before) + "^"


def _fitting(cells: Iterable[str]) -> int:
    """How many of these fit into half of the window."""
    return sum(total <= _WIDTH // 2 for total in accumulate(map(_cells, cells)))


def _cell(character: str) -> str:
    return " " * _TAB if character == "\t" else markup.harmless(character)


def _cells(text: str) -> int:
    return sum(_cell_count(character) for character in text)


def _cell_count(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
