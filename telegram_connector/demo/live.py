"""The demo in a terminal. The only module that knows rich."""

from __future__ import annotations

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from telegram_connector.demo.plan import Plan
from telegram_connector.demo.tally import Tally
from telegram_connector.demo.view import Row, Snapshot, remarks, title, verdict

BAR_CELLS = 40
EVENTS_SHOWN = 12


class LiveView:
    """A picture that is redrawn in place; the last one stays."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="visible")
        self._title = ""
        self._events: list[tuple[float, str]] = []
        self._snapshot: Snapshot | None = None
        self._tally: Tally | None = None

    def begin(self, plan: Plan) -> None:
        self._title = title(plan)
        self._live.start()

    def tell(self, at: float, words: str) -> None:
        self._events.append((at, words))
        self._draw()

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._draw()

    def end(self, tally: Tally) -> None:
        self._tally = tally
        self._draw()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """The demo as it is now."""
        parts: list[RenderableType] = [Text(self._title, "dim"), Text()]
        if self._snapshot is not None:
            parts += [_chats(self._snapshot), Text(), _worker(self._snapshot), Text()]
        parts += [_event(at, words) for at, words in self._events[-EVENTS_SHOWN:]]
        if self._tally is not None:
            style = "bold green" if self._tally.clean else "bold red"
            parts += [Text(), Text(verdict(self._tally), style)]
            parts += [Text(words, "dim") for words in remarks(self._tally)]
        return Panel(Group(*parts), title="telegram-connector demo", box=ROUNDED, padding=(1, 2))


def _chats(snapshot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2))
    for row in snapshot.rows:
        table.add_row(
            Text(row.chat.name, "bold"),
            _bar(row),
            Text(f"{row.sent:3d} sent", "green"),
            Text(f"{row.waiting:3d} waiting", "dim" if not row.waiting else "yellow"),
            Text(row.state, "red" if row.held_seconds > 0 else "dim"),
        )
    return table


def _bar(row: Row) -> Text:
    sent = BAR_CELLS * row.sent // row.planned
    published = max(sent, BAR_CELLS * row.published // row.planned)
    return Text.assemble(
        ("━" * sent, "green"),
        ("━" * (published - sent), "red" if row.held_seconds > 0 else "yellow"),
        ("─" * (BAR_CELLS - published), "bright_black"),
    )


def _worker(snapshot: Snapshot) -> Text:
    style = "green" if snapshot.worker_lives else "bold red"
    return Text.assemble(("worker  ", "bold"), ("● ", style), (snapshot.worker, style))


def _event(at: float, words: str) -> Text:
    return Text.assemble((f"{at:5.1f} s  ", "cyan"), words)
