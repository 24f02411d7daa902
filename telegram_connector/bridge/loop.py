"""The asyncio thread, as seen from the blocking side."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from telegram_connector.errors import Disconnected

T = TypeVar("T")


class LoopThread:
    """An event loop on a daemon thread: an embedding program that forgets to stop it can still exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; returns once the loop runs."""
        ready = threading.Event()
        loop = asyncio.new_event_loop()

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(ready.set)
            loop.run_forever()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

        self._loop = loop
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        ready.wait()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; a stopped loop fails the future with `Disconnected`."""
        loop = self._loop
        if loop is None or loop.is_closed():
            coroutine.close()
            failed: Future[T] = Future()
            failed.set_exception(Disconnected("the NATS thread does not run"))
            return failed
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function on the loop soon; ignored when the loop has ended."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed between the check and the call
                loop.call_soon_threadsafe(function, *args)

    def stop(self, timeout_seconds: float) -> bool:
        """End the loop and join the thread; False when it did not end in time."""
        if self._loop is None or self._thread is None:
            return True
        self.call(self._loop.stop)
        self._thread.join(max(0.0, timeout_seconds))
        return not self._thread.is_alive()


def result_or(future: Future[T], timeout_seconds: float, default: T) -> T:
    """The future's result; `default` when it does not come in time or fails with a `BridgeError`."""
    from telegram_connector.errors import BridgeError

    try:
        return future.result(max(0.0, timeout_seconds))
    except (BridgeError, FutureTimeoutError):
        return default
