"""OpenTelemetry's SDK with exporters over OTLP/HTTP, for `run` alone, by the standard ``OTEL_*`` variables.

A host that embeds the relay has providers of its own, or none. Exporting is the business of the SDK's
threads: a collector that is down or hangs costs what does not fit their queues, and nothing else.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import metrics, trace

from telegram_connector import __version__, checks
from telegram_connector.cli.logs import Scrubber

FLUSH_SECONDS = 3.0  # for what the exporters still have, at most
RESERVE_SECONDS = 1.0  # of the drain budget, kept for that
SHORTEST_HEADER = 8  # that holds a secret; a shorter one would be found in words of every day
PROTOCOL = "http/protobuf"
_NOT_EXPORTED = ("opentelemetry", "urllib3")  # what exporters log would be exported, and so on

logger = logging.getLogger("telegram_connector")


class Exports:
    """What exports traces, metrics and logs; to be closed at the end."""

    def __init__(self) -> None:
        self._shut_down: list[Callable[[], object]] = []

    @property
    def reserve_seconds(self) -> float:
        """How much of a stop's time is to be kept for `close`."""
        return RESERVE_SECONDS if self._shut_down else 0.0

    def add(self, shut_down: Callable[[], object]) -> None:
        self._shut_down.append(shut_down)

    def close(self, timeout_seconds: float) -> None:
        """Hand over what is left, within the time."""
        deadline = time.monotonic() + min(timeout_seconds, FLUSH_SECONDS)
        # Shutting down waits for exports under way, up to half a minute.
        threads = [threading.Thread(target=call, daemon=True) for call in self._shut_down]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            logger.warning("what telemetry was left did not reach the collector in time")


def secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """What the variables hold that no log may show: the SDK quotes what it cannot read."""
    found: list[str] = []
    for signal in ("", *(f"_{signal}" for signal in _SET_UP)):
        headers = env.get(f"OTEL_EXPORTER_OTLP{signal}_HEADERS", "").split(",")
        found += (header.strip() for header in headers if len(header.strip()) >= SHORTEST_HEADER)
        found += checks.passwords_in(env.get(f"OTEL_EXPORTER_OTLP{signal}_ENDPOINT", ""))
    return tuple(found)


def set_up(scrub: Scrubber) -> Exports:
    """Export what the variables ask for; what cannot be is said at WARNING, and the relay runs without."""
    exports = Exports()
    wanted = [signal for signal in _SET_UP if _wanted(signal, os.environ)]
    if wanted and not _installed():
        logger.warning(
            "OTEL_ variables ask for telemetry, which needs: pip install 'telegram-connector[otel]'"
        )
        return exports
    for signal in wanted:
        try:
            _SET_UP[signal](exports, scrub)
        except Exception as error:  # noqa: BLE001 - the SDK raises what it likes over a variable's value
            why = scrub(str(error)) or type(error).__name__
            logger.warning("%s are not exported: %s", signal.lower(), why)
    return exports


def _wanted(signal: str, env: Mapping[str, str]) -> bool:
    """Whether a signal is asked for: by its exporter, or by an endpoint (logs by their exporter alone)."""

    def value(name: str) -> str:
        return env.get(name, "").strip()

    if value("OTEL_SDK_DISABLED").lower() == "true":
        return False
    exporter = value(f"OTEL_{signal}_EXPORTER").lower()
    endpoint = value(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or value("OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporter == "none" or not (exporter or (endpoint and signal != "LOGS")):
        return False
    if exporter not in ("", "otlp"):
        logger.warning("OTEL_%s_EXPORTER must be otlp or none; %s are not exported", signal, signal.lower())
        return False
    of = f"_{signal}" if value(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") else ""
    if value(f"OTEL_EXPORTER_OTLP{of}_PROTOCOL") not in ("", PROTOCOL):
        logger.warning(
            "OTEL_EXPORTER_OTLP%s_PROTOCOL must be %s; %s are not exported", of, PROTOCOL, signal.lower()
        )
        return False
    return True


def _installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _resource() -> Any:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": "telegram_connector",
        "service.version": __version__,
        "service.instance.id": str(uuid.uuid4()),
    }
    # What the variables say counts most.
    return Resource.create().merge(Resource(ours)).merge(OTELResourceDetector().detect())


def _set_up_traces(exports: Exports, _scrub: Scrubber) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return  # an agent that has started us has set it
    # Not at the interpreter's exit, which would wait for half a minute: `close` does it.
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    exports.add(provider.shutdown)


def _set_up_metrics(exports: Exports, _scrub: Scrubber) -> None:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if isinstance(metrics.get_meter_provider(), MeterProvider):
        return
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    try:
        provider = MeterProvider([reader], _resource(), shutdown_on_exit=False)
    except Exception:
        reader.shutdown()  # it has a thread, which would complain for ever
        raise
    metrics.set_meter_provider(provider)
    exports.add(provider.shutdown)


def _set_up_logs(exports: Exports, scrub: Scrubber) -> None:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(_resource(), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    logging.getLogger().addHandler(_OtlpHandler(provider, scrub))
    exports.add(provider.shutdown)


_SET_UP = {"TRACES": _set_up_traces, "METRICS": _set_up_metrics, "LOGS": _set_up_logs}


class _OtlpHandler(logging.Handler):
    """Log records over OTLP, scrubbed like the lines on stdout."""

    def __init__(self, provider: Any, scrub: Scrubber) -> None:
        super().__init__()
        self._provider = provider
        self._scrub = scrub
        self._standard = set(vars(logging.makeLogRecord({}))) | {"message", "taskName"}

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.split(".")[0] in _NOT_EXPORTED:
            return
        from opentelemetry._logs import LogRecord, SeverityNumber

        try:
            severity = min(24, max(1, record.levelno * 4 // 10 + 1))  # DEBUG 5, INFO 9, WARNING 13, ERROR 17
            self._provider.get_logger(record.name).emit(
                LogRecord(
                    timestamp=int(record.created * 1e9),
                    severity_number=SeverityNumber(severity),
                    severity_text={"WARNING": "WARN", "CRITICAL": "FATAL"}.get(
                        record.levelname, record.levelname
                    ),
                    body=self._scrub(record.getMessage()),
                    attributes=self._attributes(record),
                )
            )
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)

    def _attributes(self, record: logging.LogRecord) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for name, value in vars(record).items():
            if name in self._standard or name in ("trace_id", "span_id") or value is None:
                continue  # (OTLP has fields of its own for those two)
            if not isinstance(value, bool | int | float | str):
                value = json.dumps(value, ensure_ascii=False, default=str)
            attributes[name] = self._scrub(value) if isinstance(value, str) else value
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            attributes["exception.type"] = type(error).__qualname__
            attributes["exception.message"] = self._scrub(str(error))
            attributes["exception.stacktrace"] = self._scrub("".join(traceback.format_exception(error)))
        return attributes
