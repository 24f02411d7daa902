"""What the commands of ``ledger`` share: a connection, keys, what cannot be read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from telegram_connector.bridge import NatsClient
from telegram_connector.bridge.archive import Archive, Kept
from telegram_connector.cli.records import EXIT_FAILED, complain, one_line_errors
from telegram_connector.errors import LedgerError
from telegram_connector.links import Link
from telegram_connector.record import Record
from telegram_connector.settings import NatsSettings


def _key(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{1,64}", text):
        raise click.BadParameter(
            f"{text!r} is no key: up to 64 hexadecimal digits, as ledger list shows them"
        )
    return text.lower()


KEY = click.argument("key", type=_key, metavar="KEY")
KEYS = click.argument("keys", nargs=-1, type=_key, metavar="[KEY]...")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON array of records.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")


@contextmanager
def opened(command: str, settings: NatsSettings) -> Iterator[Archive]:
    """Connect; what goes wrong from here on is one line and exit code 1."""
    with one_line_errors(command), NatsClient(settings, f"telegram_connector {command}") as client:
        yield Archive(client, settings)


class Readable:
    """Lets through what can be read, and says at the end what could not be."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._unreadable: list[str] = []

    def records(self, found: Iterable[Kept[Record]]) -> Iterator[Record]:
        for kept in found:
            if kept.value is None:
                self._unreadable.append(kept.key)
            else:
                yield kept.value

    def links(self, found: Iterable[Kept[Link]]) -> Iterator[tuple[str, Link]]:
        for kept in found:
            if kept.value is None:
                self._unreadable.append(kept.key)
            else:
                yield kept.key, kept.value

    def end(self) -> None:
        """End with exit code 1 where something could not be read."""
        if self._unreadable:
            shown = ", ".join(self._unreadable[:5]) + (", ..." if self._unreadable[5:] else "")
            number = f"{len(self._unreadable):,} of what is stored"
            complain(self._command, f"{number} cannot be read by this version, and is left out: {shown}")
            sys.exit(EXIT_FAILED)


def record_at(archive: Archive, key: str) -> tuple[Kept[Record], Record]:
    """The one record whose key begins like that.

    Raises:
        LedgerError: There is none, there are several, or it cannot be read.
    """
    found = archive.one(key)
    if found.value is None:
        raise LedgerError(f"the record {found.key} cannot be read by this version; ledger forget deletes it")
    return found, found.value
