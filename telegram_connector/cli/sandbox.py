"""``sandbox``: a Bot API on loopback."""

from __future__ import annotations

import sys

import click

from telegram_connector.cli.manual import foot
from telegram_connector.cli.stopping import stopped_by_signals


@click.command(
    short_help="Run a Bot API on loopback to develop and test against.",
    epilog=foot(
        "sandbox --port 8081",
        "sandbox --fault flood:chat=5,times=1,retry_after=7 --flood telegram",
        done="stopped by SIGTERM or SIGINT",
        failed="a file or rule is wrong, or the port is taken",
        needs_settings=False,
    ),
)
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="0: a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen elsewhere only if you mean it.")
@click.option("--chats", type=click.Path(dir_okay=False), help="A chats file; see docs/sandbox.md.")
@click.option("--faults", "faults_file", type=click.Path(dir_okay=False), help="A file of fault rules.")
@click.option("--fault", "faults", multiple=True, help="A fault rule or preset, e.g. flood:chat=5,times=1.")
@click.option(
    "--flood", default="off", show_default=True, help="Flood control: off, telegram, strict or figures."
)
@click.option("--strict", is_flag=True, help="Only chats of the chats file exist.")
def sandbox(
    port: int,
    host: str,
    chats: str | None,
    faults_file: str | None,
    faults: tuple[str, ...],
    flood: str,
    strict: bool,
) -> None:
    """Run a Bot API to develop and test against (docs/sandbox.md). Nothing leaves this machine."""
    try:
        from telegram_connector.sandbox import serve
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    try:
        serve(host, port, chats, faults_file, flood, strict, _announce, stopped_by_signals(), faults)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _announce(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
