"""Plays a hot chat before two connectors and draws docs/status.svg: what status --watch shows.

    python scripts/record_status.py [FILE]

300 messages for one chat are queued first, then 150 for 50 others; the sandbox takes one a second per chat.
"""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import msgspec
from record_demo import self_contained
from rich.console import Console

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from telegram_connector.cli.watch import picture  # noqa: E402
from telegram_connector.envelope import TelegramOutbound, encode  # noqa: E402
from telegram_connector.overview import Observatory  # noqa: E402
from telegram_connector.relay import Relay  # noqa: E402
from telegram_connector.sandbox import Sandbox  # noqa: E402
from telegram_connector.sandbox.flood import Limits  # noqa: E402
from telegram_connector.settings import Settings  # noqa: E402
from tests.nats_server import running_server  # noqa: E402

FILE = ROOT / "docs" / "status.svg"
WIDTH = 110
TOKEN = "100001:" + "status".ljust(35, "_")
HOT, OTHERS, CHATS = 300, 150, 50


def main(path: Path) -> int:
    """Record the moment when the others are served and the hot chat waits."""
    with running_server() as server, Sandbox(flood=Limits(per_bot=0)) as sandbox:
        server.provision()
        with server.client(server.publisher_seed) as client:
            for n in range(HOT + OTHERS):
                chat = 1 if n < HOT else 100 + n % CHATS
                envelope = TelegramOutbound(msg_id=f"m{n}", chat=str(chat), text=f"text {n}")
                client.publish("telegram.outbound", encode(envelope), {"Nats-Msg-Id": envelope.msg_id})
        settings = Settings(
            bot_token=TOKEN,
            chat_id="1",
            nats_url=server.url,
            nats_nkey_seed=server.worker_seed,
            api_base_url=sandbox.url,
            workers=16,
        )
        with Relay(settings, lambda event: None), Relay(settings, lambda event: None):
            while any(sandbox.count(chat=100 + n) < OTHERS // CHATS for n in range(CHATS)):
                threading.Event().wait(0.1)
            with server.client(server.operator_seed) as client:
                observatory = Observatory(client, settings, 0.5)
                while len((overview := observatory.look()).connectors) < 2:
                    pass  # they listen within half a second
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=WIDTH)
    named = [msgspec.structs.replace(c, host="ops-1", pid=17 + n) for n, c in enumerate(overview.connectors)]
    console.print(picture(msgspec.structs.replace(overview, connectors=named)))
    title = "telegram-connector status --watch"
    path.write_text(self_contained(console.export_svg(title=title, unique_id="status")))
    print(f"Wrote {path}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE))
