"""Plays the demo and draws docs/demo.svg: the moment after the kill, and the end.

    python scripts/record_demo.py [FILE]

The picture refers to nothing outside itself: fonts that rich would load from elsewhere are left out.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from pathlib import Path

from rich.console import Console, RenderableType

from telegram_connector.cli.demo import environment, nats_server
from telegram_connector.demo import Show, draw_up
from telegram_connector.demo.live import LiveView
from telegram_connector.demo.view import Snapshot

FILE = Path(__file__).parents[1] / "docs" / "demo.svg"
WIDTH = 100
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Recorder(LiveView):
    """Keeps the picture of the moment when there is no worker."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO(), force_terminal=True, width=WIDTH, height=60))
        self.without_worker: RenderableType | None = None

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        if "killed" in snapshot.worker:
            self.without_worker = self.picture()


def main(path: Path) -> int:
    """Record; returns 1 when the demo did not end as it should, and draws nothing then."""
    view = Recorder()
    show = Show(draw_up(30, 1), nats_server(), environment(os.environ), view, pause)
    if not show.run().clean or view.without_worker is None:
        print("The demo did not end as it should; see telegram-connector demo --plain.", file=sys.stderr)
        return 1
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=WIDTH)
    console.print(view.without_worker)
    console.print(view.picture())
    path.write_text(self_contained(console.export_svg(title="telegram-connector demo", unique_id="demo")))
    print(f"Wrote {path}.")
    return 0


def pause(seconds: float) -> None:
    """Ctrl-C ends it by an exception, which leaves nothing running either."""
    threading.Event().wait(seconds)


def self_contained(svg: str) -> str:
    """The picture without its remote fonts."""
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)
    svg = re.sub(r"font-family: (Fira Code, monospace|arial)", f"font-family: {FONTS}", svg)
    rest = svg.replace('"http://www.w3.org/2000/svg"', "").replace("https://www.textualize.io", "")
    if "//" in rest:
        raise RuntimeError("the picture refers to something outside itself")
    return svg.replace("<!-- Generated with Rich https://www.textualize.io -->", "")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE))
