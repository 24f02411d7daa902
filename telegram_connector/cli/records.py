"""What commands that list and change records share: ages, tables, JSON, questions, progress, errors."""

from __future__ import annotations

import getpass
import json
import queue
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import click

from telegram_connector import clock
from telegram_connector.ages import read_length
from telegram_connector.bridge.link import PermissionDenied
from telegram_connector.cli.check import printable
from telegram_connector.errors import TelegramConnectorError
from telegram_connector.wording import visible

EXIT_FAILED = 1

_NARROWEST = 20  # columns; a table's last column is cut to what the terminal leaves, never below this

F = TypeVar("F", bound=Callable[..., Any])


def read_age(text: str) -> timedelta:
    """A length of time as people write it: ``90s``, ``15m``, ``2h``, ``3d``, ``1w``, or ``1d12h``.

    Raises:
        click.BadParameter: It is none; exit code 2.
    """
    try:
        return read_length(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def age_options(command: F) -> F:
    """Give a command ``--older-than`` and ``--newer-than``; its arguments of these names make `Ages`."""
    for name, words in (("--newer-than", "At most this old"), ("--older-than", "At least this old")):
        option = click.option(name, type=read_age, metavar="AGE", help=f"{words}: 30m, 2h, 3d.")
        command = option(command)
    return command


def utc_now() -> datetime:
    """Now, as records hold it."""
    return datetime.now(timezone.utc)


def timestamp(at: datetime) -> str:
    """A time in RFC 3339, UTC, milliseconds."""
    return clock.timestamp(at.timestamp())


def operator() -> str:
    """Who runs this command, for the record: ``user@host``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a uid without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


# Showing


def show_json_array(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON array, an object a line, each as soon as it is there.

    What fails in the middle leaves an array that is not closed, which no program takes for a whole one.
    """
    before = "["
    for item in objects:
        click.echo(f"{before}\n{_json(item)}", nl=False)
        before = ","
    click.echo("[]" if before == "[" else "\n]")


def show_json(item: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    click.echo(_json(item))


def _json(item: Mapping[str, Any]) -> str:
    text = json.dumps(item, ensure_ascii=False)
    controls = any("\x7f" <= c <= "\x9f" for c in text)  # JSON escapes those below, not these
    return json.dumps(item) if controls or printable(text) != text else text


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under headings, columns as wide as needed; on a terminal the last one is cut to fit."""
    shown = [[visible(cell) for cell in row] for row in rows]
    table = [list(headings), *shown]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings) - 1)]
    room = None
    if sys.stdout.isatty():
        room = max(_NARROWEST, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths))
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo(printable("  ".join([*cells, _cut(row[-1], room)]).rstrip()))


def _cut(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else text[: room - 1] + "…"


# Asking and doing


def confirmed(question: str, yes: bool) -> bool:
    """Whether to go on: `yes` says so without asking.

    The question goes to standard error. Where nobody can answer (no terminal), that is wrong usage (exit
    code 2) which names ``--yes``.
    """
    if yes:
        return True
    if not attended():
        raise click.UsageError(f"{question} Nobody to ask: say --yes")
    return click.confirm(question, err=True)


def attended() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin.isatty()


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[], None]]:
    """Yields what to call after each step: a bar on standard error where that is a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield lambda: bar.update(1)


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """What this package raises on purpose becomes one line on standard error and exit code 1."""
    try:
        yield
    except PermissionDenied as error:
        complain(command, f"NATS does not allow it: {error}; deploy/nats-permissions.conf has what it takes")
        sys.exit(EXIT_FAILED)
    except TelegramConnectorError as error:
        complain(command, str(error))
        sys.exit(EXIT_FAILED)


def complain(command: str, words: str) -> None:
    """One line on standard error: ``telegram-connector COMMAND: words``."""
    click.echo(printable(visible(f"telegram-connector {command}: {words}")), err=True)


class Stop:
    """Whether somebody wants the command to end between two steps."""

    def __init__(self) -> None:
        # SimpleQueue.put is documented as reentrant, so a signal handler may call it whatever it interrupts.
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._told = False

    def ask(self) -> None:
        """Want it to end; may be called by a signal handler."""
        self._asked.put(None)

    def wait(self, seconds: float = 0.0) -> bool:
        """Wait for that; whether it is so."""
        if not self._told:
            with suppress(queue.Empty):
                self._asked.get(timeout=max(0.0, seconds))
                self._told = True
        return self._told


@contextmanager
def interruptible() -> Iterator[Stop]:
    """The first SIGINT or SIGTERM is a wish to end between two steps; the second does what it always does."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # which alone may have handlers
        yield stop
        return
    before: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: object) -> None:
        stop.ask()
        signal.signal(number, before[number])

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
