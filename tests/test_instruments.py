"""The table of metrics: names, labels, and what each event adds."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from telegram_connector import events
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Deferred,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.events import Attempted, Subject
from telegram_connector.instruments import (
    ATTEMPTS,
    BACKLOG,
    CONNECTIONS,
    DEAD_LETTERS,
    DELAYED,
    LEASES_LAPSED,
    MESSAGES,
    PUBLISH_TO_SENT,
    RECEIVED,
    REMOVED_UNSEEN,
    RETRY_AFTER,
    ROLE_CHANGES,
    SEND_DURATION,
    SENT_PLAIN,
    TABLE,
    VERDICTS,
    Kind,
    Measure,
    measured,
    verdict,
)
from telegram_connector.metering import Metering, Surroundings, gauges
from telegram_connector.status import BotHold, Hold, PausedNow, Rates, Status, Tally, Work

SUBJECT = Subject("m1", "-1001234567890", "trade", 1)
TAKES_BUCKETS = "explicit_bucket_boundaries_advisory" in inspect.signature(Meter.create_histogram).parameters
NO_RATES = Rates((0, 0, 0), (0, 0, 0), (0, 0, 0))

# Every kind of answer with its labels.
DISPOSITIONS: list[tuple[Disposition, tuple[str, str]]] = [
    (Sent(1), ("sent", "ok")),
    (Transient(429, "slow", 3.0), ("transient", "rate_limited")),
    (Transient(500, "oops"), ("transient", "server_error")),
    (Transient(0, "internal error: KeyError"), ("transient", "internal")),
    (Transient(418, "teapot"), ("transient", "other")),
    (Unavailable("refused"), ("unavailable", "unreachable")),
    (Unavailable("bad gateway", 502), ("unavailable", "server_error")),
    (Ambiguous("silence"), ("ambiguous", "no_answer")),
    (Ambiguous("gateway", 504), ("ambiguous", "server_error")),
    (Ambiguous("cut", 200), ("ambiguous", "unreadable")),
    *((Terminal(400, "no", reason), ("terminal", reason)) for _, reason in VERDICTS if _ == "terminal"),
    (Migrated("-100"), ("migrated", "migrated")),
    (BotFault(401, "Unauthorized"), ("bot_fault", "refused")),
    (Concluded("sent"), ("concluded", "sent")),
    (Concluded("cancelled"), ("concluded", "cancelled")),
    (Deferred("ledger away"), ("deferred", "ledger")),
]


def attempted(disposition: Disposition, **more: Any) -> Attempted:
    return Attempted(SUBJECT, disposition, 1, 5.0, "ack", None, **more)


def status(**changes: Any) -> Status:
    work: dict[str, Any] = {
        "outstanding": 6,
        "waiting": 3,
        "in_flight": 1,
        "awaited": 2,
        "limit": 10,
        "unconfirmed": 1,
        "holds": [Hold("5", 2.0, 3)],
        "holds_in_all": 1,
        "bot": None,
        "pauses": [],
        "pauses_in_all": 0,
        "lanes": 4,
        "longest_hold_seconds": 2.0,
        "oldest_seconds": 9.5,
    }
    work |= {key: changes.pop(key) for key in list(changes) if key in work}
    tally = Tally(sent=1, retried=2, dropped={"refused": 3}, last_sent_at=None, rates=NO_RATES)
    known: dict[str, Any] = {
        "id": "ab",
        "host": "h",
        "pid": 1,
        "version": "1.0",
        "stream": "S",
        "durable": "d",
        "role": "active",
        "sending": True,
        "up_seconds": 1.0,
        "connected_seconds": 1.0,
        "work": Work(**work),
        "tally": tally,
    }
    return Status(**(known | changes))


AROUND = Surroundings(True, 7, 2, 1_700_000_000.0, 5, 4, 3)


# The table


def test_names_follow_prometheus_conventions():
    names = [instrument.prometheus_name for instrument in TABLE]
    assert len(set(names)) == len(names)
    for instrument, name in zip(TABLE, names, strict=True):
        assert re.fullmatch(r"telegram_connector_[a-z_]+", name)
        assert name.endswith("_total") == (instrument.kind is Kind.COUNTER)
        assert name.endswith("_seconds") == (instrument.unit == "s")
        assert instrument.unit == "s" or re.fullmatch(r"\{[a-z]+\}", instrument.unit)
        assert instrument.help
        assert not instrument.help.endswith(".")
        assert bool(instrument.buckets) == (instrument.kind is Kind.HISTOGRAM)
        assert list(instrument.buckets) == sorted(set(instrument.buckets))


def test_labels_are_few_and_bounded():
    for instrument in TABLE:
        assert not {"chat", "chat_id", "msg_id", "nats_msg_id", "description"} & set(instrument.labels)
        if instrument.labels != ("version", "stream"):
            for values in instrument.values:
                assert len(values) == len(instrument.labels)
            assert len(instrument.values) <= 32


def test_every_disposition_has_its_labels_and_every_label_its_disposition():
    assert [verdict(disposition) for disposition, _ in DISPOSITIONS] == [labels for _, labels in DISPOSITIONS]
    assert {labels for _, labels in DISPOSITIONS} == set(VERDICTS)
    assert {type(d) for d, _ in DISPOSITIONS} == set(typing.get_args(Disposition))


@pytest.mark.parametrize("disposition", [d for d, _ in DISPOSITIONS], ids=repr)
def test_what_is_measured_has_listed_labels_only(disposition: Disposition):
    measures = list(measured(attempted(disposition, dead_lettered=True, since_stored_seconds=2.0)))
    for measure in measures:
        assert measure.labels in measure.instrument.values
    assert measures[0] == Measure(ATTEMPTS, 1, verdict(disposition))
    final = isinstance(disposition, Sent | Terminal | Concluded)
    assert [m.instrument is MESSAGES for m in measures].count(True) == final
    assert verdict(disposition)[:1] in SEND_DURATION.values or isinstance(disposition, Concluded | Deferred)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.Received(SUBJECT, 1), [Measure(RECEIVED, 1, ("false",))]),
        (events.Received(SUBJECT, 2), [Measure(RECEIVED, 1, ("true",))]),
        (events.Connected("h", "2.11"), [Measure(CONNECTIONS, 1)]),
        (events.SentPlain(SUBJECT, "can't parse", 3), [Measure(SENT_PLAIN, 1)]),
        (events.Delayed(SUBJECT, 5.0), [Measure(DELAYED, 1)]),
        (events.BecameActive(3), [Measure(ROLE_CHANGES, 1, ("active",))]),
        (events.BecameStandby(3), [Measure(ROLE_CHANGES, 1, ("standby",))]),
        (events.LeaseLapsed(4, 1), [Measure(LEASES_LAPSED, 4)]),
        (events.RemovedUnseen(10, 19), [Measure(REMOVED_UNSEEN, 10)]),
        (events.ChatHeld("5", 2.0, "flood"), []),
        (
            attempted(Sent(1), since_stored_seconds=2.5),
            [
                Measure(ATTEMPTS, 1, ("sent", "ok")),
                Measure(MESSAGES, 1, ("sent", "ok")),
                Measure(PUBLISH_TO_SENT, 2.5),
            ],
        ),
        (
            attempted(Sent(1), since_stored_seconds=-3.0),  # the server's clock is ahead of ours
            [
                Measure(ATTEMPTS, 1, ("sent", "ok")),
                Measure(MESSAGES, 1, ("sent", "ok")),
                Measure(PUBLISH_TO_SENT, 0.0),
            ],
        ),
        (
            attempted(Transient(429, "slow", 7.0)),
            [Measure(ATTEMPTS, 1, ("transient", "rate_limited")), Measure(RETRY_AFTER, 7.0)],
        ),
        (
            attempted(Terminal(400, "no"), dead_lettered=True),
            [
                Measure(ATTEMPTS, 1, ("terminal", "refused")),
                Measure(MESSAGES, 1, ("terminal", "refused")),
                Measure(DEAD_LETTERS, 1, ("refused",)),
            ],
        ),
        (
            attempted(Terminal(400, "no"), dead_lettered=False),
            [Measure(ATTEMPTS, 1, ("terminal", "refused")), Measure(MESSAGES, 1, ("terminal", "refused"))],
        ),
    ],
)
def test_what_an_event_adds(event: events.Event, expected: list[Measure]):
    assert list(measured(event)) == expected


# Gauges


def shown(status_: Status, around: Surroundings = AROUND) -> dict[Any, float]:
    return {
        (m.instrument.name.removeprefix("telegram_connector."), *m.labels): m.value
        for m in gauges(status_, around)
    }


def test_gauges_show_what_the_status_says():
    found = shown(status())
    assert found["backlog_messages",] == 7
    assert found["in_doubt_messages",] == 2
    assert found["backlog_age",] == 9.5
    assert [found["outstanding_messages", s] for s in ("waiting", "in_flight", "awaited")] == [3, 1, 2]
    assert (found["lanes",], found["lanes_held",], found["longest_hold",]) == (4, 1, 2.0)
    assert (found["active",], found["connected",]) == (1, 1)
    assert found["last_round_trip_timestamp",] == 1_700_000_000.0
    assert [found["queue_depth", q] for q in ("deliveries", "settlements", "alerts")] == [5, 1, 4]
    assert found["alerts_gathered",] == 3
    assert found["info", "1.0", "S"] == 1
    assert ("last_sent_timestamp",) not in found


def test_every_gauge_of_the_table_is_shown_once_known():
    tally = Tally(sent=1, retried=0, dropped={}, last_sent_at="2023-11-14T22:13:20.000Z", rates=NO_RATES)
    known = shown(status(tally=tally))
    assert known["last_sent_timestamp",] == 1_700_000_000.0
    assert {name for name, *_ in known} == {
        i.name.removeprefix("telegram_connector.") for i in TABLE if i.kind is Kind.GAUGE
    }


def test_what_is_unknown_is_not_shown_as_nothing():
    found = shown(status(), Surroundings(False, None, None, None, 0, 0, 0))
    assert ("backlog_messages",) not in found
    assert ("in_doubt_messages",) not in found
    assert ("last_round_trip_timestamp",) not in found
    assert found["connected",] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (0, 0, 0)),
        ({"bot": BotHold("Unauthorized", True, 1.0, 1.0)}, (1, 0, 0)),
        ({"bot": BotHold("no route", False, 1.0, 1.0)}, (0, 1, 0)),
        ({"pauses": [PausedNow(None, "", None, "", 0)], "pauses_in_all": 1}, (0, 0, 1)),
        ({"pauses": [PausedNow("5", "", None, "", 0)], "pauses_in_all": 1}, (0, 0, 0)),
    ],
)
def test_why_the_bot_waits(changes: dict[str, Any], expected: tuple[int, int, int]):
    found = shown(status(**changes))
    assert tuple(found["bot_paused", cause] for cause in ("fault", "outage", "operator")) == expected
    by_chat = changes.get("pauses_in_all", 0) - expected[2]
    assert found["chats_paused",] == by_chat


# At OpenTelemetry's API


class Reader:
    """A host's provider whose metrics are read at will."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self._histograms: dict[str, list[Any]] = {}

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        found = {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        # Older SDKs leave out a histogram that was told nothing since the last look.
        self._histograms |= {
            n: points for n, points in found.items() if points and hasattr(points[0], "bucket_counts")
        }
        return (found | self._histograms).get(f"telegram_connector.{name}", [])

    def values(self, name: str) -> dict[Any, float]:
        return {tuple(sorted(p.attributes.items())): p.value for p in self.points(name)}


def test_counters_and_histograms_reach_the_hosts_provider():
    reader = Reader()
    metering = Metering("d", reader.provider)
    for _ in range(3):
        metering.observe(attempted(Sent(1), since_stored_seconds=0.2))
    metering.add(Measure(SEND_DURATION, 0.3, ("sent",)))
    messages = reader.values("messages")
    assert messages[("disposition", "sent"), ("durable", "d"), ("reason", "ok")] == 3
    assert messages[("disposition", "terminal"), ("durable", "d"), ("reason", "refused")] == 0
    (duration,) = reader.points("send_duration")
    assert (duration.count, duration.sum) == (1, 0.3)
    if TAKES_BUCKETS:
        assert tuple(duration.explicit_bounds) == SEND_DURATION.buckets


def test_totals_and_otlp_agree():
    reader = Reader()
    metering = Metering("d", reader.provider)
    for disposition, _ in DISPOSITIONS:
        metering.observe(attempted(disposition, dead_lettered=True, since_stored_seconds=40.0))
    totals = metering.totals()
    for (instrument, labels), value in totals.counters.items():
        key = tuple(sorted(metering.attributes(instrument, labels).items()))
        assert reader.values(instrument.name.removeprefix("telegram_connector."))[key] == value
    (point,) = reader.points("publish_to_sent")
    known = totals.histograms[PUBLISH_TO_SENT, ()]
    assert (point.count, point.sum) == (sum(known.counts), known.sum)
    if TAKES_BUCKETS:
        assert list(point.bucket_counts) == known.counts


def test_a_value_on_a_bound_counts_below_it():
    metering = Metering("d", Reader().provider)
    for value in (0.01, 0.010001, 31.0):
        metering.add(Measure(SEND_DURATION, value, ("sent",)))
    counts = metering.totals().histograms[SEND_DURATION, ("sent",)].counts
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (1, 1, 1, 3)


def test_gauges_of_several_relays_and_of_one_that_starts_again():
    reader = Reader()
    one, other = Metering("one", reader.provider), Metering("other", reader.provider)
    assert reader.values("backlog_messages") == {}
    one.show(lambda: [Measure(BACKLOG, 5)])
    other.show(lambda: [Measure(BACKLOG, 6)])
    assert reader.values("backlog_messages") == {(("durable", "one"),): 5, (("durable", "other"),): 6}
    one.show()
    assert reader.values("backlog_messages") == {(("durable", "other"),): 6}
    one.show(lambda: [Measure(BACKLOG, 7)])
    assert reader.values("backlog_messages")[(("durable", "one"),)] == 7


def test_the_gauges_are_looked_at_once_for_all_that_ask_together():
    now = [0.0]
    metering = Metering("d", Reader().provider, lambda: now[0])
    looks: list[int] = []

    def read() -> list[Measure]:
        looks.append(1)
        return [Measure(BACKLOG, len(looks))]

    metering.show(read)
    assert [metering.readings()[0].value for _ in range(3)] == [1, 1, 1]
    now[0] = 1.0
    assert metering.readings()[0].value == 2


def test_a_provider_that_raises_costs_nothing_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    metering = Metering("d", Reader().provider)

    def boom(*_args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(metering._meters, "add", boom)
    for _ in range(3):
        metering.observe(events.Connected("h", "2.11"))
    assert metering.totals().counters[CONNECTIONS, ()] == 3
    assert len([r for r in caplog.records if "the meter provider raised" in r.message]) == 1


# The documentation


def test_every_metric_is_documented_with_its_kind_labels_and_words():
    text = (Path(__file__).parents[1] / "docs" / "telemetry.md").read_text()
    for instrument in TABLE:
        labels = ", ".join(f"`{label}`" for label in instrument.labels)
        row = f"| `{instrument.prometheus_name}` | {instrument.kind.value} | {labels} | {instrument.help} |"
        assert row in text
    for disposition, reason in VERDICTS:
        assert f"`{disposition}`" in text
        assert f"`{reason}`" in text
