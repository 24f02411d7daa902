"""A synchronous program with threads and signals of its own that embeds the relay.

The relay runs in its own threads. The program keeps its signal handlers, its logging and its environment; it
hears of everything through an observer, and stops the relay when it stops itself.

    NATS_URL=... NATS_TELEGRAM_NKEY_SEED=... TELEGRAM_BOT_TOKEN=... TELEGRAM_CHAT_ID=... \
        python examples/embed_in_threads.py
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading

from telegram_connector.errors import RelayFailed, SettingsError
from telegram_connector.events import Attempted, Event
from telegram_connector.relay import Relay
from telegram_connector.settings import Settings


def main() -> int:
    stop: queue.SimpleQueue[str] = queue.SimpleQueue()  # put() is safe in a signal handler
    signal.signal(signal.SIGTERM, lambda *_: stop.put("SIGTERM"))
    signal.signal(signal.SIGINT, lambda *_: stop.put("SIGINT"))

    settled: queue.SimpleQueue[Attempted | None] = queue.SimpleQueue()

    def observe(event: Event) -> None:
        # Called from the relay's threads: hand over and return.
        if isinstance(event, Attempted):
            settled.put(event)

    def report() -> None:
        while (event := settled.get()) is not None:
            print(event.subject.nats_msg_id, event.settled, flush=True)

    try:
        relay = Relay(Settings.from_env(os.environ), observe)
    except SettingsError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return 78
    reporter = threading.Thread(target=report, name="reporter")
    reporter.start()
    relay.on_end(lambda: stop.put("the relay failed"))
    try:
        if not relay.start():
            print("dormant: no token or no NATS URL")
            return 0
        print("running", flush=True)
        print("stopping:", stop.get(), flush=True)
        relay.stop(timeout_seconds=10)
        relay.wait(0)
    except RelayFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        settled.put(None)
        reporter.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
