"""The environment, read once for a command; faults end it with one screen and exit code 78."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from telegram_connector.errors import SettingsError
from telegram_connector.settings import ConsoleSettings, NatsSettings, Settings, unknown_variables

EXIT_SETTINGS = 78  # EX_CONFIG of sysexits.h


def relay_settings() -> Settings:
    """Settings for the relay."""
    try:
        return Settings.from_env(os.environ)
    except SettingsError as error:
        refuse(error)


def nats_settings() -> NatsSettings:
    """Settings for commands that need NATS only, and no bot token."""
    try:
        return NatsSettings.from_env(os.environ)
    except SettingsError as error:
        refuse(error)


def console_settings() -> ConsoleSettings:
    """Settings for the operator's page."""
    try:
        return ConsoleSettings.from_env(os.environ)
    except SettingsError as error:
        refuse(error)


def bot_id() -> str | None:
    """The id of the bot whose token the environment holds; None where it holds none."""
    return os.environ.get("TELEGRAM_BOT_TOKEN", "").strip().partition(":")[0] or None


def misspelt() -> tuple[str, ...]:
    """Variables that look like ours and are not."""
    return unknown_variables(os.environ)


def refuse(error: SettingsError) -> NoReturn:
    """Say every fault and exit."""
    click.echo(f"telegram-connector: {len(error.faults)} setting(s) to mend:", err=True)
    for fault in error.faults:
        click.echo(f"  {fault}", err=True)
    for name in misspelt():
        click.echo(f"telegram-connector: {name} is not a setting of this version", err=True)
    sys.exit(EXIT_SETTINGS)
