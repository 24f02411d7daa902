"""Lengths of time as the type of an option."""

from __future__ import annotations

import click

from telegram_connector.ages import read_duration


def duration(value: str) -> float:
    """Seconds, from words like 90s, 10m, 1h30m or 2d, up to a year.

    Raises:
        click.BadParameter: It is none; exit code 2.
    """
    try:
        return read_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
