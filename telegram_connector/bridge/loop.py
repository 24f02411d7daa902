"""The asyncio thread, as seen from the blocking side."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from telegram_connector.errors import Disconnected

T = TypeVar("T")
END_TURNS = 10


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a daemon thread of its own.

    asyncio looks up host names in its executor, whose threads Python joins at exit: a resolver that is silent
    would hold up a stopped process for half a minute.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                    future.set_exception(error)

        try:
            threading.Thread(target=run, name="nats-lookup", daemon=True).start()
        except RuntimeError:  # Python 3.12 starts no threads while it exits
            run()
        return future


class LoopThread:
    """An event loop on a daemon thread: an embedding program that forgets to stop it can still exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False  # what is submitted from now on would never run

    def start(self) -> None:
        """Start the thread; returns once the loop runs."""
        ready = threading.Event()
        loop = asyncio.new_event_loop()
        loop.set_default_executor(_DaemonThreads())

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(ready.set)
            loop.run_forever()
            with self._lock:
                self._ended = True
            # What was submitted a moment ago becomes a task only now; nats-py's need several turns to end.
            for _ in range(END_TURNS):
                loop.run_until_complete(asyncio.sleep(0))
                tasks = asyncio.all_tasks(loop)
                if not tasks:
                    break
                for task in tasks:
                    task.cancel()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

        self._loop = loop
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        ready.wait()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; a stopped loop fails the future with `Disconnected`."""
        with self._lock:
            if self._loop is not None and not self._ended:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        failed: Future[T] = Future()
        failed.set_exception(Disconnected("the NATS thread does not run"))
        return failed

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
