"""The relay as a whole, wired from settings: what `run` starts and what other programs embed."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from telegram_connector import __version__, status
from telegram_connector.alerts import Alerts
from telegram_connector.bridge import JetStreamSource
from telegram_connector.delivery import Records
from telegram_connector.errors import RelayFailed
from telegram_connector.events import Dormant, Event, Observer, Started, Stopped, Stopping
from telegram_connector.ledger import KvLedger, Ledger, NullLedger
from telegram_connector.pacing import Rates
from telegram_connector.settings import Settings
from telegram_connector.settlement import Policy
from telegram_connector.state import State
from telegram_connector.status import Figures
from telegram_connector.telegram import TelegramClient
from telegram_connector.telemetry import log_event
from telegram_connector.worker import Rules, Worker

CLOSE_SECONDS = 3.0  # of the budget, kept for closing the connection
logger = logging.getLogger("telegram_connector")

READ_PAUSES_SECONDS = 2.0
EXIT_SECONDS = 5.0  # the budget when the interpreter exits and nobody has stopped the relay


@dataclass(frozen=True)
class _Running:
    source: JetStreamSource
    worker: Worker
    process: int


class Relay:
    """Relays envelopes from JetStream to the Bot API until stopped.

    It installs no signal handlers, configures no logging and reads no environment. Several may run in one
    process. It may be started again after it was stopped. In a forked child it is as good as stopped: the
    child neither sends nor settles; one that wants to must start a relay of its own.

    Args:
        settings: See `Settings`.
        observe: Gets every event, from several threads; the default writes log lines to the logger
            ``telegram_connector``. It must not block and must not call the relay; what it
            raises is logged and changes nothing.
    """

    def __init__(self, settings: Settings, observe: Observer = log_event) -> None:
        self._settings = settings
        self._observe = observe
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._failure: tuple[str, BaseException] | None = None
        self._on_end: Callable[[], None] = lambda: None
        self._running: _Running | None = None
        self._observer_fault = ""

    def start(self) -> bool:
        """Start the threads and return at once; connecting goes on in the background, for ever if need be.

        Returns:
            False when the settings are dormant (token or NATS URL unset): nothing was started.

        Raises:
            RuntimeError: It runs already.
        """
        if self._settings.dormant:
            self._tell(Dormant(self._settings.dormant))
            return False
        with self._lock:
            if self._running is not None and self._running.process == os.getpid():
                raise RuntimeError("this Relay runs already")
            self._failure = None
            self._ended.clear()
            self._running = running = self._wire()
            hosts = tuple(urlsplit(url).netloc.rpartition("@")[2] for url in self._settings.nats_servers)
            self._tell(
                Started(
                    self._settings.api_base_url,
                    self._settings.api_is_telegram,
                    hosts,
                    self._settings.durable,
                )
            )
            running.source.start()
            running.worker.start()
        # Daemon threads alone would be cut off in mid-send at the interpreter's exit.
        atexit.register(self._at_exit)
        return True

    def _wire(self) -> _Running:
        settings = self._settings
        alerts = Alerts(settings.durable, settings.meta_alert_on_drop)
        figures = Figures(time.monotonic, time.time)

        def observe(event: Event) -> None:
            alerts.observe(event)
            figures.observe(event)
            self._tell(event)

        source = JetStreamSource(settings, observe, lambda error: self._died("nats", error))
        apis = [
            TelegramClient(
                settings.bot_token,
                settings.api_base_url,
                proxy_url=settings.proxy_url,
                ca_bundle=settings.ca_bundle,
            )
            for _ in range(settings.workers)
        ]
        rates = Rates(settings.bot_rate, settings.chat_rate, settings.group_rate_per_minute)
        worker = Worker(
            source,
            apis,
            State(source, observe, f"{settings.stream}.{settings.durable}"),
            Policy(settings.ack_wait_seconds, settings.max_deliver, settings.nak_backoff_seconds),
            Rules(
                settings.chat_id,
                settings.max_pending,
                settings.max_age_seconds,
                rates if settings.pacing else None,
                falls_back=settings.parse_fallback == "plain",
            ),
            alerts,
            observe=observe,
            on_death=self._died,
            random=random.random,
            lease_clock=source.clock,
            ledger=self._ledger(source, observe),
        )
        source.on_request(self._answer(source, worker, figures), worker.read_pauses)
        return _Running(source, worker, os.getpid())

    def _ledger(self, records: Records, observe: Observer) -> Ledger:
        settings = self._settings
        if settings.ledger == "off":
            return NullLedger()
        bot = settings.bot_token.partition(":")[0]
        return KvLedger(records, bot, parks=settings.on_ambiguous == "park", observe=observe)

    def _answer(self, source: JetStreamSource, worker: Worker, figures: Figures) -> Callable[[bytes], bytes]:
        """What requests for the status are answered with."""
        started, name = time.monotonic(), secrets.token_hex(4)

        def answer(request: bytes) -> bytes:
            if request == status.READ_PAUSES:
                worker.read_pauses(READ_PAUSES_SECONDS)
            return status.encode(
                status.Status(
                    id=name,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    version=__version__,
                    stream=self._settings.stream,
                    durable=self._settings.durable,
                    role="active" if source.active() else "standby",
                    sending=worker.may_send,
                    up_seconds=round(time.monotonic() - started, 1),
                    connected_seconds=round(source.connected_seconds, 1),
                    work=worker.work(),
                    tally=figures.tally(),
                )
            )

        return answer

    def _tell(self, event: Event) -> None:
        """Tell the host's observer, whose bugs must not become ours."""
        try:
            self._observe(event)
        except Exception as error:
            if self._observer_fault != repr(error):
                self._observer_fault = repr(error)
                logger.exception("the observer raised over %s", type(event).__name__)

    def _died(self, thread: str, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = (thread, error)
        # Not on the thread that died: stopping joins it.
        threading.Thread(target=self._stop_failed, name="relay-stop", daemon=True).start()

    def _stop_failed(self) -> None:
        with contextlib.suppress(RelayFailed):
            self.stop(reason="a thread died")
        self._on_end()

    def _at_exit(self) -> None:
        with contextlib.suppress(RelayFailed):
            self.stop(min(EXIT_SECONDS, self._settings.drain_seconds), "the interpreter exits")

    @property
    def running(self) -> bool:
        """Whether it was started in this process and not stopped since."""
        return self._running is not None and self._running.process == os.getpid()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, from a thread of the relay's, after it has failed and stopped itself."""
        self._on_end = callback

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the relay is stopped; False when it still runs after `timeout_seconds`.

        Raises:
            RelayFailed: A thread died of a bug; the relay has stopped itself and given back what it held.
        """
        ended = self._ended.wait(timeout_seconds)
        if ended:
            self._raise_failure()
        return ended

    def stop(self, timeout_seconds: float | None = None, reason: str = "asked to") -> None:
        """Stop pulling, finish the send in flight, give back the rest, close. Idempotent.

        Safe before `start`, from any thread, and in a forked child, where it does nothing.

        Args:
            timeout_seconds: The whole budget; by default the settings' drain time.

        Raises:
            RelayFailed: A thread had died of a bug.
        """
        running = self._running
        if running is None or running.process != os.getpid():
            # Not even the lock is touched in a child: it may have been held by another thread at the fork.
            return
        with self._lock:
            if self._running is running:
                self._shut_down(running, timeout_seconds, reason)
                self._running = None
                self._ended.set()
                atexit.unregister(self._at_exit)
        self._raise_failure()

    def _shut_down(self, running: _Running, timeout_seconds: float | None, reason: str) -> None:
        budget = self._settings.drain_seconds if timeout_seconds is None else timeout_seconds
        started = time.monotonic()
        deadline = started + budget
        self._tell(Stopping(reason))
        given_back = running.worker.stop(deadline - min(CLOSE_SECONDS, budget / 5))
        running.source.close(max(0.1, deadline - time.monotonic()))
        self._tell(Stopped(time.monotonic() - started, given_back))

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
