"""``status --watch``: the same in a terminal, again and again."""

from __future__ import annotations

import threading

from rich.box import ROUNDED
from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from telegram_connector.bridge import NatsClient
from telegram_connector.cli.status import rows
from telegram_connector.errors import BridgeError
from telegram_connector.overview import Observatory, Overview
from telegram_connector.settings import NatsSettings

AGAIN_SECONDS = 1.0
ALARMING = ("BOT PAUSED", "THE BOT", "none answered", "sends nothing")


def watch_for_ever(settings: NatsSettings, wait_seconds: float, console: Console | None = None) -> None:
    """Draw until Ctrl-C; a connection that is lost is made again."""
    pause = threading.Event()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        shown: Overview | None = None
        try:
            while True:
                try:
                    with NatsClient(settings, "telegram_connector status --watch") as client:
                        observatory = Observatory(client, settings, wait_seconds)
                        while True:
                            shown = observatory.look()
                            live.update(picture(shown), refresh=True)
                            pause.wait(AGAIN_SECONDS if not shown.connectors else 0.1)
                except BridgeError as error:
                    live.update(picture(shown, str(error)), refresh=True)
                    pause.wait(AGAIN_SECONDS)
        except KeyboardInterrupt:
            return


def picture(overview: Overview | None, trouble: str = "") -> RenderableType:
    """The overview as it is drawn; `trouble` says why it is an old one."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    if trouble:
        table.add_row(Text("NATS", "bold red"), Text(f"{trouble}; trying again", "red"))
    for name, words in rows(overview) if overview is not None else ():
        table.add_row(name, Text(words, _style(name, words), overflow="fold"))
    return Panel(table, title="telegram-connector status", box=ROUNDED, padding=(1, 2))


def _style(name: str, words: str) -> str:
    if any(sign in words for sign in ALARMING):
        return "bold red"
    if name in ("paused", "not known") or " held for " in words:
        return "yellow"
    return "green" if ": active" in words else ""
