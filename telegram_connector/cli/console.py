"""``console``: the operator's page."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from telegram_connector.cli import logs
from telegram_connector.cli.manual import foot
from telegram_connector.cli.records import complain, operator
from telegram_connector.cli.settings import EXIT_SETTINGS, bot_id, console_settings
from telegram_connector.cli.stopping import stopped_by_signals
from telegram_connector.errors import ProjectionError
from telegram_connector.projection import Policy, read_policy

PORT = 8082
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where a platform asks for it, and never without a token


@click.command(
    short_help="Serve the operator's page: status, dead letters, doubts.",
    epilog=foot(
        "console",
        "console --port 9000",
        "console --name console.example.org",
        done="stopped by SIGTERM or SIGINT",
        failed="the address is taken, or Flask is not installed",
    ),
)
@click.option("--port", type=click.IntRange(0, 65535), help=f"PORT, or {PORT}; 0: a free one.")
@click.option("--host", help="The address to listen on: 127.0.0.1, or all where PORT is set.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name that a proxy serves it under.")
@click.option(
    "--policy", "policy_file", type=click.Path(exists=True, dir_okay=False), help="For the preview."
)
def console(port: int | None, host: str | None, names: tuple[str, ...], policy_file: str | None) -> None:
    """Serve the operator's page (docs/console.md).

    It shows how things stand, live, and what became of a message and why; it pauses and resumes, resends and
    discards dead letters, settles what is in doubt, and previews what the projection would send.

    On 127.0.0.1 it asks for no login. Anywhere else, and under a --name, it wants TG_CONSOLE_TOKEN, 24 random
    characters or more, and https in front of it. Where the environment has PORT, as on Heroku, it listens
    there on all addresses. Every action is logged. Needs NATS with an operator's rights (TELEGRAM_OPERATOR in
    deploy/nats-permissions.conf), the extra console, and no bot token.
    """
    settings = console_settings()
    routed = settings.port is not None and host is None
    address = host or (EVERYWHERE if routed else "127.0.0.1")
    try:
        from telegram_connector.console import Access, Console, serve
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    policy = _policy(policy_file)
    try:
        access = Access(
            address, settings.token, frozenset(name.strip().lower() for name in names), routed=routed
        )
    except ValueError as error:
        _refuse(str(error), routed)
    logs.set_up(settings.log_level, settings.log_format, (*settings.secrets, _bot_token()))
    made = Console(
        settings,
        access,
        port=port if port is not None else settings.port or PORT,
        operator=operator(),
        bot=bot_id(),
        policy=policy,
    )
    try:
        serve(made, lambda url: _announce(url, access.token is not None), stopped_by_signals())
    except OSError as error:
        complain("console", f"cannot listen at {address}: {error}")
        sys.exit(1)


def _policy(path: str | None) -> Policy | None:
    if path is None:
        return None
    with open(path, "rb") as file:  # noqa: PTH123 - as click hands it over
        try:
            return read_policy(file.read())
        except ProjectionError as error:
            raise click.BadParameter("; ".join(error.faults), param_hint="--policy") from None


def _bot_token() -> str:
    return os.environ.get("TELEGRAM_BOT_TOKEN", "").strip()


def _refuse(words: str, routed: bool) -> NoReturn:
    click.echo("telegram-connector: 1 setting(s) to mend:", err=True)
    because = " (PORT is set, so it would listen on all addresses)" if routed else ""
    click.echo(f"  {words}{because}", err=True)
    sys.exit(EXIT_SETTINGS)


def _announce(url: str, asks: bool) -> None:
    click.echo(f"The operator's page: {url}{' (it asks for TG_CONSOLE_TOKEN)' if asks else ''}")
    sys.stdout.flush()
