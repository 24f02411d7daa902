"""The relay as a whole, wired from settings: what `run` starts and what other programs embed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from urllib.parse import urlsplit

from telegram_connector.alerts import Alerts
from telegram_connector.bridge import JetStreamSource
from telegram_connector.errors import RelayFailed
from telegram_connector.events import Dormant, Event, Observer, Started, Stopped, Stopping
from telegram_connector.settings import Settings
from telegram_connector.settlement import Policy
from telegram_connector.state import State
from telegram_connector.telegram import TelegramClient
from telegram_connector.telemetry import log_event
from telegram_connector.worker import Rules, Worker

CLOSE_SECONDS = 3.0  # of the budget, kept for closing the connection


class Relay:
    """Relays envelopes from JetStream to the Bot API until stopped.

    It installs no signal handlers, configures no logging and reads no environment.

    Args:
        settings: See `Settings`.
        observe: Gets every event; the default writes log lines to the logger ``telegram_connector``.
    """

    def __init__(self, settings: Settings, observe: Observer = log_event) -> None:
        self._settings = settings
        self._observe = observe
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._failure: tuple[str, BaseException] | None = None
        self._on_end: Callable[[], None] = lambda: None
        self._source: JetStreamSource | None = None
        self._worker: Worker | None = None

    def start(self) -> bool:
        """Start the threads and return at once; connecting goes on in the background, for ever if need be.

        Returns:
            False when the settings are dormant (token or NATS URL unset): nothing was started.

        Raises:
            RuntimeError: It was started before.
        """
        if self._settings.dormant:
            self._observe(Dormant(self._settings.dormant))
            return False
        with self._lock:
            if self._source is not None:
                raise RuntimeError("a Relay is started once; make a new one")
            self._source, self._worker = self._wire()
            self._observe(
                Started(
                    self._settings.api_base_url,
                    self._settings.api_is_telegram,
                    tuple(urlsplit(url).netloc.rpartition("@")[2] for url in self._settings.nats_servers),
                    self._settings.durable,
                )
            )
            self._source.start()
            self._worker.start()
        return True

    def _wire(self) -> tuple[JetStreamSource, Worker]:
        settings = self._settings
        alerts = Alerts(settings.durable, settings.meta_alert_on_drop)

        def observe(event: Event) -> None:
            alerts.observe(event)
            self._observe(event)

        source = JetStreamSource(settings, observe, lambda error: self._died("nats", error))
        api = TelegramClient(
            settings.bot_token,
            settings.api_base_url,
            proxy_url=settings.proxy_url,
            ca_bundle=settings.ca_bundle,
        )
        worker = Worker(
            source,
            [api],
            State(source, observe),
            Policy(settings.ack_wait_seconds, settings.max_deliver, settings.nak_backoff_seconds),
            Rules(settings.chat_id, settings.max_pending, settings.max_age_seconds),
            alerts,
            observe=observe,
            on_death=self._died,
            random=random.random,
            lease_clock=source.clock,
        )
        return source, worker

    def _died(self, thread: str, error: BaseException) -> None:
        if self._failure is None:
            self._failure = (thread, error)
        self._ended.set()
        self._on_end()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, from the thread that noticed, when the relay has failed."""
        self._on_end = callback

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the relay was stopped; False when it still runs after `timeout_seconds`.

        Raises:
            RelayFailed: A thread died of a bug. The relay is useless then; `stop` gives back what it holds.
        """
        ended = self._ended.wait(timeout_seconds)
        self._raise_failure()
        return ended

    def stop(self, timeout_seconds: float | None = None, reason: str = "asked to") -> None:
        """Stop pulling, finish the send in flight, give back the rest, close. Idempotent.

        Args:
            timeout_seconds: The whole budget; by default the settings' drain time.

        Raises:
            RelayFailed: A thread had died of a bug.
        """
        with self._lock:
            source, worker = self._source, self._worker
            if source is not None and worker is not None:
                self._worker = None
                self._shut_down(source, worker, timeout_seconds, reason)
            self._ended.set()
        self._raise_failure()

    def _shut_down(
        self, source: JetStreamSource, worker: Worker, timeout_seconds: float | None, reason: str
    ) -> None:
        budget = self._settings.drain_seconds if timeout_seconds is None else timeout_seconds
        started = time.monotonic()
        deadline = started + budget
        self._observe(Stopping(reason))
        given_back = worker.stop(deadline - min(CLOSE_SECONDS, budget / 5))
        source.close(max(0.1, deadline - time.monotonic()))
        self._observe(Stopped(time.monotonic() - started, given_back))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            thread, error = self._failure
            raise RelayFailed(f"thread {thread} died: {type(error).__name__}: {error}") from error

    def __enter__(self) -> Relay:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
