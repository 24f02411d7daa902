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

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from telegram_connector import __version__, status
from telegram_connector.alerts import Alerts
from telegram_connector.bridge import JetStreamSource
from telegram_connector.delivery import Records
from telegram_connector.errors import RelayFailed
from telegram_connector.events import (
    Dormant,
    Event,
    MetricsUnserved,
    Observer,
    Started,
    Stopped,
    Stopping,
)
from telegram_connector.instruments import SEND_DURATION, Measure, verdict
from telegram_connector.ledger import KvLedger, Ledger, NullLedger
from telegram_connector.metering import Metering, Surroundings, gauges
from telegram_connector.pacing import Rates
from telegram_connector.page import Page, Reply
from telegram_connector.reporter import Reporter
from telegram_connector.settings import Settings
from telegram_connector.settlement import Policy
from telegram_connector.state import State
from telegram_connector.status import Figures, Status
from telegram_connector.telegram import TelegramClient
from telegram_connector.telemetry import log_event
from telegram_connector.tracing import Tracing
from telegram_connector.worker import Rules, Worker

CLOSE_SECONDS = 3.0  # of the budget, kept for closing the connection
logger = logging.getLogger("telegram_connector")

READ_PAUSES_SECONDS = 2.0
READY_SECONDS = 15.0  # three probes of JetStream: not ready when none of them was answered
ALIVE_SECONDS = 60.0  # the reader looks around every half second, unless JetStream keeps it waiting
EXIT_SECONDS = 5.0  # the budget when the interpreter exits and nobody has stopped the relay


@dataclass(frozen=True)
class _Running:
    source: JetStreamSource
    worker: Worker
    reporter: Reporter
    page: Page | None
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
        tracer_provider: OpenTelemetry's, for spans; None for the global one, also where it is set later.
        meter_provider: The same for metrics.
    """

    def __init__(
        self,
        settings: Settings,
        observe: Observer = log_event,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._settings = settings
        self._observe = observe
        self._metering = Metering(settings.durable, meter_provider)
        self._tracing = Tracing(
            settings.subject,
            settings.durable,
            settings.api_base_url,
            tracer_provider,
            lambda seconds, tried: self._metering.add(Measure(SEND_DURATION, seconds, verdict(tried)[:1])),
        )
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
            self._tell(
                Started(
                    self._settings.api_base_url,
                    self._settings.api_is_telegram,
                    self._settings.nats_hosts,
                    self._settings.durable,
                )
            )
            running.source.start()
            running.worker.start()
            running.reporter.start()
            self._open(running.page)
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
            self._metering.observe(event)
            self._tell(event)

        source = JetStreamSource(
            settings, observe, lambda error: self._died("nats", error), settling=self._tracing.settling
        )
        apis = [
            TelegramClient(
                settings.bot_token,
                settings.api_base_url,
                proxy_url=settings.proxy_url,
                ca_bundle=settings.ca_bundle,
                classify=self._tracing.classify,
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
            tracing=self._tracing,
        )
        status_now = self._status(source, worker, figures)

        def answer(request: bytes) -> bytes:
            if request == status.READ_PAUSES:
                worker.read_pauses(READ_PAUSES_SECONDS)
            return status.encode(status_now())

        source.on_request(answer, worker.read_pauses)
        self._metering.show(lambda: gauges(status_now(), _surroundings(source, worker, alerts)))
        reporter = Reporter(
            status_now,
            lambda: source.backlog,
            source.beat,
            observe,
            settings.stats_log_seconds,
        )
        return _Running(source, worker, reporter, self._page(source, worker), os.getpid())

    def _page(self, source: JetStreamSource, worker: Worker) -> Page | None:
        if self._settings.metrics_port is None:
            return None
        address = (self._settings.metrics_host, self._settings.metrics_port)
        return Page(address, self._metering, lambda: _alive(worker), lambda: _ready(source))

    def _open(self, page: Page | None) -> None:
        """Serve the page; what it cannot have says so, and messages go on."""
        try:
            if page is not None:
                page.start()
        except OSError as error:
            where = f"{self._settings.metrics_host} port {self._settings.metrics_port}"
            self._tell(MetricsUnserved(f"{where} (TG_METRICS_PORT): {os.strerror(error.errno or 0)}"))

    def _ledger(self, records: Records, observe: Observer) -> Ledger:
        settings = self._settings
        if settings.ledger == "off":
            return NullLedger()
        bot = settings.bot_token.partition(":")[0]
        return KvLedger(records, bot, parks=settings.on_ambiguous == "park", observe=observe)

    def _status(self, source: JetStreamSource, worker: Worker, figures: Figures) -> Callable[[], Status]:
        """What tells the status of now."""
        started, name = time.monotonic(), secrets.token_hex(4)

        def status_now() -> Status:
            return Status(
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

        return status_now

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
        running.reporter.stop()
        given_back = running.worker.stop(deadline - min(CLOSE_SECONDS, budget / 5))
        running.source.close(max(0.1, deadline - time.monotonic()))
        self._metering.show()
        if running.page is not None:
            running.page.stop()
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


def _surroundings(source: JetStreamSource, worker: Worker, alerts: Alerts) -> Surroundings:
    ago = source.round_trip_ago_seconds
    return Surroundings(
        connected=source.connected,
        backlog=source.backlog,
        in_doubt=source.in_doubt,
        last_round_trip=None if ago is None else time.time() - ago,
        deliveries=source.unread,
        alerts=worker.alerts_waiting,
        gathered=alerts.gathered,
    )


def _alive(worker: Worker) -> Reply:
    """Whether the relay's own threads work; that NATS or Telegram is away is no reason to start it anew."""
    ago = worker.read_ago_seconds
    if ago > ALIVE_SECONDS:
        return Reply(False, f"the reader was last at work {ago:.0f} s ago")
    return Reply(True, "the reader is at work")


def _ready(source: JetStreamSource) -> Reply:
    """Whether JetStream answered about our consumer just now; one that stands by is ready, too."""
    ago = source.round_trip_ago_seconds
    if not source.connected or ago is None:
        return Reply(False, "no connection to NATS with the consumer bound")
    role = "active" if source.active() else "standby"
    return Reply(ago <= READY_SECONDS, f"{role}; JetStream last answered {ago:.1f} s ago")
