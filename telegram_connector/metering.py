"""Keeps the figures of `instruments`, and hands them on to OpenTelemetry's API and whoever asks for them."""

from __future__ import annotations

import bisect
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from opentelemetry import metrics
from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    NoOpMeter,
    Observation,
)

from telegram_connector import __version__, instruments
from telegram_connector.events import Event
from telegram_connector.fence import Fence
from telegram_connector.instruments import TABLE, Instrument, Kind, Measure
from telegram_connector.status import Status

FRESH_SECONDS = 0.5


@dataclass(frozen=True)
class Surroundings:
    """What gauges show besides the status.

    Attributes:
        connected: Whether there is a connection with the consumer bound.
        backlog: How many messages JetStream has handed to nobody yet; None when unknown.
        in_doubt: How many messages in doubt wait for an operator; None when unknown.
        last_round_trip: When JetStream last answered, seconds since 1970; None for never.
        deliveries: How many deliveries wait to be read.
        alerts: How many alerts wait to be sent.
        gathered: How many drops wait for an alert that is due later.
    """

    connected: bool
    backlog: int | None
    in_doubt: int | None
    last_round_trip: float | None
    deliveries: int
    alerts: int
    gathered: int


def gauges(status: Status, around: Surroundings) -> Iterator[Measure]:
    """What the gauges show."""
    work = status.work
    yield Measure(instruments.INFO, 1, (status.version, status.stream))
    if around.backlog is not None:
        yield Measure(instruments.BACKLOG, around.backlog)
    yield Measure(instruments.BACKLOG_AGE, work.oldest_seconds)
    for state, count in (("waiting", work.waiting), ("in_flight", work.in_flight), ("awaited", work.awaited)):
        yield Measure(instruments.OUTSTANDING, count, (state,))
    yield Measure(instruments.OUTSTANDING_LIMIT, work.limit)
    yield Measure(instruments.LANES, work.lanes)
    yield Measure(instruments.LANES_HELD, work.holds_in_all)
    yield Measure(instruments.LONGEST_HOLD, work.longest_hold_seconds)
    by_operator = bool(work.pauses) and work.pauses[0].chat is None
    yield Measure(instruments.CHATS_PAUSED, work.pauses_in_all - by_operator)
    fault = work.bot is not None and work.bot.fault
    causes = (("fault", fault), ("outage", work.bot is not None and not fault), ("operator", by_operator))
    for cause, holds in causes:
        yield Measure(instruments.BOT_PAUSED, int(holds), (cause,))
    if around.in_doubt is not None:
        yield Measure(instruments.IN_DOUBT, around.in_doubt)
    yield Measure(instruments.ACTIVE, int(status.role == "active"))
    yield Measure(instruments.CONNECTED, int(around.connected))
    if around.last_round_trip is not None:
        yield Measure(instruments.LAST_ROUND_TRIP, around.last_round_trip)
    if status.tally.last_sent_at is not None:
        at = datetime.fromisoformat(status.tally.last_sent_at.replace("Z", "+00:00"))
        yield Measure(instruments.LAST_SENT, at.timestamp())
    yield Measure(instruments.ALERTS_GATHERED, around.gathered)
    depths = (("deliveries", around.deliveries), ("settlements", work.unconfirmed), ("alerts", around.alerts))
    for queue, depth in depths:
        yield Measure(instruments.QUEUE_DEPTH, depth, (queue,))


@dataclass
class Distribution:
    """What a histogram has been told.

    Attributes:
        counts: By bucket, each alone, that beyond the last bound included.
        sum: Of all values.
    """

    counts: list[int]
    sum: float = 0.0


@dataclass
class Totals:
    """Counters and histograms at one moment, by instrument and label values."""

    counters: dict[tuple[Instrument, tuple[str, ...]], float] = field(default_factory=dict)
    histograms: dict[tuple[Instrument, tuple[str, ...]], Distribution] = field(default_factory=dict)


class Metering:
    """Counts, as an observer of events. Thread-safe.

    Args:
        durable: Label of everything.
        provider: OpenTelemetry's; None for the global one, also where the host sets it later.
    """

    def __init__(
        self,
        durable: str,
        provider: MeterProvider | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.durable = durable
        self._clock = clock
        self._lock = threading.Lock()
        self._fence = Fence("the meter provider")
        # From the start at 0: what appears at its first increment has no rate of increase.
        self._totals = Totals(
            {(i, v): 0.0 for i in TABLE if i.kind is Kind.COUNTER for v in i.values},
            {
                (i, v): Distribution([0] * (len(i.buckets) + 1))
                for i in TABLE
                if i.kind is Kind.HISTOGRAM
                for v in i.values
            },
        )
        self._reading = threading.Lock()
        self._read: Callable[[], Iterable[Measure]] = tuple
        self._last: tuple[Measure, ...] = ()
        self._fresh_until = float("-inf")
        self._meters = _nowhere
        with self._fence:
            self._meters = _meters_of(provider)
            self._meters.serve(self)

    def observe(self, event: Event) -> None:
        """Count what an event says."""
        for measure in instruments.measured(event):
            self.add(measure)

    def add(self, measure: Measure) -> None:
        """Add to a counter, or note a histogram's value."""
        instrument, value, labels = measure
        with self._lock:
            if instrument.kind is Kind.COUNTER:
                counters = self._totals.counters
                counters[instrument, labels] = counters.get((instrument, labels), 0.0) + value
            else:
                known = self._totals.histograms[instrument, labels]
                known.counts[bisect.bisect_left(instrument.buckets, value)] += 1
                known.sum += value
        with self._fence:
            self._meters.add(measure, self.attributes(instrument, labels))

    def show(self, read: Callable[[], Iterable[Measure]] = tuple) -> None:
        """Have the gauges show what `read` returns; nothing by default."""
        with self._reading:
            self._read, self._fresh_until = read, float("-inf")

    def readings(self) -> tuple[Measure, ...]:
        """What the gauges show; looked at once for all that ask in the same moment."""
        with self._reading:
            now = self._clock()
            if now >= self._fresh_until:
                self._last, self._fresh_until = tuple(self._read()), now + FRESH_SECONDS
            return self._last

    def totals(self) -> Totals:
        """Counters and histograms as they are now."""
        with self._lock:
            histograms = {
                key: Distribution(list(known.counts), known.sum)
                for key, known in self._totals.histograms.items()
            }
            return Totals(dict(self._totals.counters), histograms)

    def leave_to_the_parent(self) -> None:
        """In a forked child: show nothing of the parent's relay. A lock may have been held at the fork."""
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._read, self._fresh_until = tuple, float("-inf")

    def attributes(self, instrument: Instrument, labels: Sequence[str]) -> dict[str, str]:
        """Label names and values, the durable's among them."""
        return {"durable": self.durable, **dict(zip(instrument.labels, labels, strict=True))}


class _Meters:
    """The table's instruments at one meter provider: made once, since they cannot be taken away again."""

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._served: weakref.WeakSet[Metering] = weakref.WeakSet()
        self._counters: dict[Instrument, Counter] = {}
        self._histograms: dict[Instrument, Histogram] = {}
        for instrument in TABLE:
            what = {"name": instrument.name, "unit": instrument.unit, "description": instrument.help}
            if instrument.kind is Kind.COUNTER:
                self._counters[instrument] = meter.create_counter(**what)
            elif instrument.kind is Kind.HISTOGRAM:
                self._histograms[instrument] = _histogram(meter, instrument)
            else:
                meter.create_observable_gauge(callbacks=[partial(self._look, instrument)], **what)
        _every.add(self)

    def serve(self, metering: Metering) -> None:
        """Have the gauges show what a relay's do, as long as it is there."""
        with self._lock:
            self._served.add(metering)
        for instrument, counter in self._counters.items():
            for labels in instrument.values:
                counter.add(0, metering.attributes(instrument, labels))

    def leave_to_the_parent(self) -> None:
        self._lock = threading.Lock()
        for metering in list(self._served):
            metering.leave_to_the_parent()

    def add(self, measure: Measure, attributes: dict[str, str]) -> None:
        if measure.instrument.kind is Kind.COUNTER:
            self._counters[measure.instrument].add(measure.value, attributes)
        else:
            self._histograms[measure.instrument].record(measure.value, attributes)

    def _look(self, instrument: Instrument, _options: CallbackOptions) -> Iterator[Observation]:
        with self._lock:
            served = list(self._served)
        for metering in served:
            for measure in metering.readings():
                if measure.instrument is instrument:
                    yield Observation(measure.value, metering.attributes(instrument, measure.labels))


def _histogram(meter: Meter, instrument: Instrument) -> Histogram:
    name, unit, description = instrument.name, instrument.unit, instrument.help
    buckets = list(instrument.buckets)
    try:
        return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)
    except TypeError:  # an API of before 1.30, where buckets are the provider's own
        return meter.create_histogram(name, unit, description)


_every: weakref.WeakSet[_Meters] = weakref.WeakSet()
_nowhere = _Meters(NoOpMeter("telegram_connector"))
_known: weakref.WeakKeyDictionary[MeterProvider, _Meters] = weakref.WeakKeyDictionary()
_global: list[_Meters] = []
_making = threading.Lock()


def _meters_of(provider: MeterProvider | None) -> _Meters:
    with _making:
        if provider is None:
            if not _global:
                _global.append(_Meters(metrics.get_meter("telegram_connector", __version__)))
            return _global[0]
        if provider not in _known:
            _known[provider] = _Meters(provider.get_meter("telegram_connector", __version__))
        return _known[provider]


def _leave_to_the_parent() -> None:
    # A provider goes on in a child, and would say of the parent's relay what the parent's says.
    global _making
    _making = threading.Lock()
    for meters in list(_every):
        meters.leave_to_the_parent()


os.register_at_fork(after_in_child=_leave_to_the_parent)
