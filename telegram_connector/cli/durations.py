"""Lengths of time as people write them."""

from __future__ import annotations

import click

from telegram_connector.cli.records import read_age

LONGEST_SECONDS = 365 * 86_400.0


def duration(value: str) -> float:
    """Seconds, from words like 90s, 10m, 1h30m or 2d, up to a year; the type of an option.

    Raises:
        click.BadParameter: It is none; exit code 2.
    """
    seconds = read_age(value).total_seconds()
    if not 0 < seconds <= LONGEST_SECONDS:
        raise click.BadParameter(f"{value!r} is not within a second and a year")
    return seconds
