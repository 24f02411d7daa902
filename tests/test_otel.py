"""OpenTelemetry as users run it: real processes, a collector over HTTP, one that hangs, and none."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.cli import otel
from telegram_connector.cli.logs import Scrubber
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.publisher import Publisher
from tests.collector import Collector, attributes, collecting
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered, worker_env
from tests.process import Process

ROOT = Path(__file__).parents[1]
OLD_SDK = tuple(map(int, importlib.metadata.version("opentelemetry-sdk").split(".")[:2])) < (1, 36)
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(autouse=True)
def _no_ambient_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def exporting(fleet: Fleet, collector: Collector, **more: str) -> dict[str, str]:
    return worker_env(
        fleet,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_METRIC_EXPORT_INTERVAL="200",
        **more,
    )


# Through a real collector


@pytest.mark.integration
@pytest.mark.skipif(OLD_SDK, reason="the extra otel asks for a newer one")
def test_spans_metrics_and_logs_of_one_message_arrive(fleet: Fleet, collector: Collector) -> None:
    env = exporting(fleet, collector, OTEL_LOGS_EXPORTER="otlp", LOG_LEVEL="DEBUG")
    env["OTEL_RESOURCE_ATTRIBUTES"] = "deployment.environment.name=test"
    with Process("run", env=env) as worker:
        with Publisher(fleet.server.settings(fleet.server.publisher_seed)) as publisher:
            envelope = TelegramOutbound(msg_id="m1", chat="100", text="the secret text")
            publisher.publish(envelope, headers=TRACEPARENT)
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        names = {"receive", "send_message", "classify_response", "settle"}
        collector.until(lambda: {span.name for span in collector.spans} >= names)
        collector.until(lambda: sent_in(collector) == 1)
        collector.until(lambda: any(r.body.string_value == "sent" for r in collector.logs))
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    by_name = {span.name: span for span in collector.spans}
    assert by_name["receive"].parent_span_id.hex() == "b7ad6b7169203331"
    assert by_name["send_message"].parent_span_id == by_name["receive"].span_id
    assert by_name["classify_response"].parent_span_id == by_name["send_message"].span_id
    assert by_name["settle"].parent_span_id == by_name["receive"].span_id
    assert attributes(by_name["send_message"])["url.template"] == "/bot{token}/sendMessage"
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in collector.spans)
    assert collector.resource["service.name"] == "telegram_connector"
    assert collector.resource["deployment.environment.name"] == "test"
    assert {"telegram_connector.backlog_messages", "telegram_connector.active"} <= set(collector.metrics)
    (sent,) = [r for r in collector.logs if r.body.string_value == "sent"]
    assert (sent.severity_text, sent.trace_id.hex()) == ("DEBUG", TRACE)
    assert attributes(sent)["nats_msg_id"] == "m1"
    for secret in ("the secret text", TOKEN, TOKEN.split(":")[1], fleet.server.worker_seed):
        assert all(secret.encode() not in body for body in collector.raw), secret


def sent_in(collector: Collector) -> float:
    metric = collector.metrics.get("telegram_connector.messages")
    return sum(
        point.as_double or point.as_int
        for point in (metric.sum.data_points if metric else ())
        if attributes(point)["disposition"] == "sent"
    )


@pytest.mark.integration
def test_what_is_left_is_flushed_on_stop(fleet: Fleet, collector: Collector) -> None:
    env = exporting(fleet, collector) | {
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
        "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
    }
    fleet.publish(*numbered(5, 1))
    with Process("run", env=env) as worker:
        fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
        assert collector.spans == []
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert len([span for span in collector.spans if span.name == "send_message"]) == 5
    assert sent_in(collector) == 5


@pytest.mark.integration
def test_a_collector_that_hangs_costs_no_message_and_little_time(fleet: Fleet, collector: Collector) -> None:
    collector.hang = True
    env = exporting(fleet, collector, OTEL_LOGS_EXPORTER="otlp", OTEL_BSP_MAX_QUEUE_SIZE="64")
    env["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "32"
    fleet.publish(*numbered(200, 5))
    with Process("run", env=env) as worker:
        collector.until(lambda: len(collector.raw) >= 2)
        fleet.sandbox.wait(count=200, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
        started = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        stopped_in = time.monotonic() - started
        assert "stopped in" in worker.output
        assert "did not reach the collector in time" in worker.output
    # The flush's own bound, where the SDK alone would wait for half a minute.
    assert stopped_in < otel.FLUSH_SECONDS + 7
    for chat in range(100, 105):
        assert fleet.texts(chat) == [e.text for e in numbered(200, 5) if e.chat == str(chat)]


@pytest.mark.integration
def test_a_flush_keeps_to_the_drain_budget(fleet: Fleet, collector: Collector) -> None:
    collector.hang = True
    fleet.publish(*numbered(1, 1))
    with Process("run", env=exporting(fleet, collector, TG_DRAIN_SECS="2")) as worker:
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        collector.until(lambda: len(collector.raw) >= 1)
        fleet.assert_nothing_left()
        started = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert time.monotonic() - started < 2 + 3  # and what it takes a busy machine to end a process


@pytest.mark.integration
def test_without_a_collector_it_is_said_once_not_per_export(fleet: Fleet) -> None:
    env = worker_env(
        fleet,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_BSP_SCHEDULE_DELAY="20",
        OTEL_METRICS_EXPORTER="none",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
    )
    fleet.publish(*numbered(30, 2))
    with Process("run", env=env) as worker:
        fleet.sandbox.wait(count=30, timeout_seconds=PATIENCE_SECONDS)
        worker.until('"logger": "opentelemetry')
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        lines = [json.loads(line) for line in worker.output.splitlines()]
    complaints = [line["message"][:40] for line in lines if line["logger"].startswith("opentelemetry")]
    assert len(complaints) <= 4
    assert len(fleet.texts()) == 30


@pytest.mark.integration
def test_nothing_is_exported_unless_asked_for(fleet: Fleet) -> None:
    fleet.publish(*numbered(1, 1))
    with Process("run", env=worker_env(fleet, LOG_LEVEL="DEBUG")) as worker:
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert ":4318" not in worker.output  # where the SDK would export to by default


@pytest.mark.integration
@pytest.mark.parametrize(
    ("variable", "value", "quoted"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, api-key hunter2", "Header format invalid"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "hunter2hunter2", "Header format invalid"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "user:hunter2@collector", "No connection adapters"),
    ],
)
def test_what_the_sdk_quotes_of_the_variables_holds_no_secret(
    fleet: Fleet, collector: Collector, variable: str, value: str, quoted: str
) -> None:
    fleet.publish(*numbered(1, 1))
    with Process("run", env=exporting(fleet, collector) | {variable: value}) as worker:
        worker.until(quoted)
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "hunter2" not in worker.output
        assert "<redacted>" in worker.output


@pytest.mark.integration
def test_providers_that_cannot_be_loaded_cost_no_message(fleet: Fleet) -> None:
    """OpenTelemetry's API loads what these name, and raises, whenever it is asked for a provider."""
    fleet.publish(*numbered(2, 1))
    names = {"OTEL_PYTHON_TRACER_PROVIDER": "nonsense", "OTEL_PYTHON_METER_PROVIDER": "nonsense"}
    with Process("run", env=worker_env(fleet, **names)) as worker:
        fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "Failed to load configured provider" in worker.output
        for what in ("tracer", "meter"):
            assert worker.output.count(f"the {what} provider raised; messages go on") == 1


def test_a_short_header_takes_no_words_out_of_the_log():
    assert otel.secrets({"OTEL_EXPORTER_OTLP_HEADERS": "a=b, c"}) == ()


# What the variables say


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, "TRACES METRICS"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, "TRACES"),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, "METRICS"),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c"}, ""),
        ({"OTEL_LOGS_EXPORTER": "otlp"}, "LOGS"),
        ({"OTEL_TRACES_EXPORTER": "OTLP"}, "TRACES"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, "TRACES"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "True"}, ""),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "TRACES"),
    ],
)
def test_what_is_exported(env: dict[str, str], wanted: str):
    assert [s for s in ("TRACES", "METRICS", "LOGS") if otel._wanted(s, env)] == wanted.split()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER must be otlp or none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL must be http/protobuf",
        ),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRICS_EXEMPLAR_FILTER": "nonsense"},
            "metrics are not exported: Unknown exemplar filter",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "1"},  # below a batch's size
            "traces are not exported: ",
        ),
    ],
)
def test_what_cannot_be_is_said_and_stops_nothing(
    env: dict[str, str],
    words: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    before = set(threading.enumerate())
    exports = otel.set_up(Scrubber([]))
    assert exports.reserve_seconds == 0
    exports.close(1)
    ours = [record.getMessage() for record in caplog.records if record.name == "telegram_connector"]
    assert [words in line for line in ours] == [True]
    assert set(threading.enumerate()) == before


def test_without_the_extra_it_is_named(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(otel, "_installed", lambda: False)
    assert otel.set_up(Scrubber([])).reserve_seconds == 0
    (record,) = caplog.records
    assert "pip install 'telegram-connector[otel]'" in record.getMessage()


@pytest.mark.skipif(OLD_SDK, reason="the extra otel asks for a newer one")
def test_records_over_otlp_are_scrubbed_and_carry_their_attributes():
    emitted: list[Any] = []

    class Provider:
        def get_logger(self, _name: str) -> Any:
            return self

        def emit(self, record: Any) -> None:
            emitted.append(record)

    handler = otel._OtlpHandler(Provider(), Scrubber(["hunter2"]))
    logger = logging.Logger("telegram_connector")
    logger.addHandler(handler)
    try:
        raise ValueError("no hunter2")
    except ValueError as error:
        logger.error("with %s", "hunter2", extra={"a": "hunter2", "b": 1, "c": ["hunter2"]}, exc_info=error)
    (record,) = emitted
    assert (record.body, record.severity_text, record.severity_number.value) == (
        "with <redacted>",
        "ERROR",
        17,
    )
    assert record.attributes["exception.type"] == "ValueError"
    assert "hunter2" not in repr((record.body, record.attributes))
    assert (record.attributes["b"], record.attributes["c"]) == (1, '["<redacted>"]')
    for level, number in ((10, 5), (20, 9), (30, 13), (50, 21)):
        logger.log(level, "x")
        assert emitted[-1].severity_number.value == number
    for name in ("opentelemetry.sdk", "urllib3.connectionpool"):
        handler.handle(logging.LogRecord(name, 40, "f", 1, "x", None, None))
    assert len(emitted) == 5


# In other programs


def run(code: str, **env: str) -> str:
    """What a host program of a few lines prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_configures_nothing():
    """With variables that would have `run` export, too."""
    found = run(
        """
        import logging, signal, sys, threading
        before = (list(logging.root.handlers), logging.root.level, sys.excepthook, threading.excepthook,
                  signal.getsignal(signal.SIGTERM), set(threading.enumerate()))
        import pkgutil, importlib, telegram_connector
        for module in pkgutil.walk_packages(telegram_connector.__path__, "telegram_connector."):
            if module.name not in ("telegram_connector.__main__", "telegram_connector.pytest_plugin"):
                importlib.import_module(module.name)
        from opentelemetry import metrics, trace
        after = (list(logging.root.handlers), logging.root.level, sys.excepthook, threading.excepthook,
                 signal.getsignal(signal.SIGTERM), set(threading.enumerate()))
        assert before == after
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        assert "Proxy" in type(metrics.get_meter_provider()).__name__
        assert not [n for n in sys.modules if n.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
        assert "prometheus_client" not in sys.modules
        print("nothing")
        """,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_LOGS_EXPORTER="otlp",
        TG_METRICS_PORT="9464",
    )
    assert found == "nothing\n"


@pytest.mark.integration
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_hosts_global_providers_are_used_and_never_replaced(fleet: Fleet, when: str) -> None:
    """Also when the host sets them after it has made the relay."""
    fleet.publish(*numbered(3, 1))
    env = worker_env(fleet, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", WHEN=when)
    found = run(
        """
        import logging, os, urllib.request
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from telegram_connector.relay import Relay
        from telegram_connector.settings import Settings

        spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracer_provider, meter_provider = TracerProvider(), MeterProvider([reader])
        tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
        records = []
        logging.root.handlers[:] = [handler] = [logging.Handler()]
        handler.emit = records.append
        logging.root.setLevel(logging.INFO)

        def set_providers():
            trace.set_tracer_provider(tracer_provider)
            metrics.set_meter_provider(meter_provider)

        if os.environ["WHEN"] == "before":
            set_providers()
        relay = Relay(Settings.from_env(os.environ))
        if os.environ["WHEN"] == "after":
            set_providers()
        with relay:
            base = os.environ["TELEGRAM_API_BASE_URL"]
            urllib.request.urlopen(base + "/_sandbox/wait?count=3&timeout=30").read()
        assert trace.get_tracer_provider() is tracer_provider
        assert metrics.get_meter_provider() is meter_provider
        assert logging.root.handlers == [handler] and logging.root.level == logging.INFO
        assert not logging.getLogger("telegram_connector").handlers
        print(sorted({span.name for span in spans.get_finished_spans()}))
        data = reader.get_metrics_data()
        points = [(p.attributes["disposition"], p.value) for r in data.resource_metrics
                  for s in r.scope_metrics for m in s.metrics if m.name == "telegram_connector.messages"
                  for p in m.data.data_points if p.value]
        print(points)
        print(any("stopped in" in record.getMessage() for record in records))
        """,
        **env,
    )
    assert found.splitlines() == [
        "['classify_response', 'receive', 'send_message', 'settle']",
        "[('sent', 3)]",
        "True",
    ]
