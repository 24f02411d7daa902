"""How a command that serves until it is stopped hears of that."""

from __future__ import annotations

import queue
import signal
import threading


def stopped_by_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on; to be called on the main thread."""
    stop = threading.Event()
    # As in `run`: SimpleQueue.put is the one thing that is safe in a signal handler.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: signals.put(number))

    def wait() -> None:
        signals.get()
        stop.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
