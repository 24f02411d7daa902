"""Spans: one trace from the publisher to Telegram's answer, without text or token, at no message's cost."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext, SpanKind, StatusCode

from telegram_connector import events
from telegram_connector.delivery import Ack, Nak, Term
from telegram_connector.disposition import Sent, Terminal
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.events import Subject
from telegram_connector.publisher import Publisher
from telegram_connector.relay import Relay
from telegram_connector.traceparent import carried, continued
from telegram_connector.tracing import Tracing, untraced
from tests.fakes import FakeApi, FakeSource, make_delivery
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SUBJECT = Subject("m1", "7", "alert", 1)


class Recorder:
    """A provider of the host's that keeps what ends."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def tracing(self) -> Tracing:
        return Tracing("telegram.outbound", "tg_outbound", "https://api.telegram.org", self.provider)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return trace.format_trace_id(span.context.trace_id)


def parent_of(span: ReadableSpan, spans: list[ReadableSpan]) -> str:
    """The name of the span above, or "remote"."""
    assert span.parent is not None
    for other in spans:
        assert other.context is not None
        if other.context.span_id == span.parent.span_id:
            return other.name
    return "remote"


# The headers


def test_the_current_span_is_carried_unless_the_caller_has_one():
    recorder = Recorder()
    assert carried({}) == {}
    with recorder.provider.get_tracer("host").start_as_current_span("order") as span:
        found = carried({})
        assert found["traceparent"].split("-")[1] == trace.format_trace_id(span.get_span_context().trace_id)
        assert set(found) <= {"traceparent", "tracestate"}
        assert carried({"Traceparent": TRACEPARENT}) == {}


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_a_publishers_context_is_continued_however_its_client_spells_it(name: str):
    found = trace.get_current_span(continued({name: TRACEPARENT})).get_span_context()
    assert trace.format_trace_id(found.trace_id) == TRACE
    assert found.is_remote


@pytest.mark.parametrize("value", ["", "00-0-0-01", "x" * 9000, f"00-{'0' * 32}-b7ad6b7169203331-01", "\x00"])
def test_what_is_no_context_is_none(value: str):
    assert not trace.get_current_span(continued({"traceparent": value})).get_span_context().is_valid
    assert continued({"tracestate": "a=b"}) == {}


# Spans on their own


def test_receive_says_what_was_received_and_begins_the_trace():
    recorder = Recorder()
    tracing = recorder.tracing()
    delivery = make_delivery(5, headers={"traceparent": TRACEPARENT}, hand_over=2)
    began = tracing.received(delivery, SUBJECT)
    (span,) = recorder.spans
    assert (span.name, span.kind, trace_id(span)) == ("receive", SpanKind.CONSUMER, TRACE)
    assert attributes(span) == {
        "messaging.system": "nats",
        "messaging.destination.name": "telegram.outbound",
        "messaging.consumer.group.name": "tg_outbound",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.message.id": "m1",
        "messaging.message.body.size": len(delivery.payload),
        "telegram_connector.stream_seq": 5,
        "telegram_connector.hand_over": 2,
        "telegram_connector.chat": "7",
        "telegram_connector.kind": "alert",
    }
    with tracing.within(began):
        assert trace.get_current_span().get_span_context() == span.context
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_publishers_choose_makes_no_span_too_large_for_a_collector():
    recorder = Recorder()
    tracing = recorder.tracing()
    long = "m" * 100_000
    tracing.received(make_delivery(1), Subject(long, "7", long, 1))
    tracing.watch(FakeApi(FakeSource())).send(TelegramOutbound(msg_id=long, text="t"), "7", 99.0)
    for span in recorder.spans:
        assert len(span.to_json()) < 4000
        assert attributes(span)["messaging.message.id"] == "m" * 200


@pytest.mark.parametrize(
    ("outcome", "status", "expected"),
    [
        (True, StatusCode.UNSET, {"telegram_connector.confirmed": True}),
        (False, StatusCode.UNSET, {"telegram_connector.confirmed": False}),
        (None, StatusCode.UNSET, {"telegram_connector.confirmed": False}),
        (RuntimeError("secret"), StatusCode.ERROR, {"error.type": "RuntimeError"}),
    ],
)
def test_settle_lasts_until_it_is_confirmed(outcome: Any, status: StatusCode, expected: dict[str, Any]):
    recorder = Recorder()
    confirmed: Future[bool] = Future()
    recorder.tracing().settling(make_delivery(5), Ack(), confirmed)
    assert recorder.spans == []
    if outcome is None:
        confirmed.cancel()
    elif isinstance(outcome, Exception):
        confirmed.set_exception(outcome)
    else:
        confirmed.set_result(outcome)
    (span,) = recorder.spans
    assert (span.name, span.kind, span.status.status_code) == ("settle", SpanKind.CLIENT, status)
    found = attributes(span)
    assert expected.items() <= found.items()
    assert (found["messaging.operation.name"], found["messaging.operation.type"]) == ("ack", "settle")
    assert "secret" not in span.to_json()


def test_settle_names_what_is_told_and_belongs_to_the_message_without_a_send():
    recorder = Recorder()
    done: Future[bool] = Future()
    done.set_result(True)
    delivery = make_delivery(5, headers={"traceparent": TRACEPARENT})
    for command in (Nak(2.5), Term("refused")):
        recorder.tracing().settling(delivery, command, done)
    nak, term = recorder.spans
    assert (attributes(nak)["messaging.operation.name"], trace_id(nak)) == ("nak", TRACE)
    assert attributes(nak)["telegram_connector.delay_seconds"] == 2.5
    assert attributes(term)["messaging.operation.name"] == "term"


def test_a_bug_of_ours_over_a_send_goes_on_and_its_span_is_an_error():
    recorder = Recorder()
    api = FakeApi(FakeSource())
    api.script["boom"] = [ValueError("the secret text")]
    with pytest.raises(ValueError, match="secret"):
        recorder.tracing().watch(api).send(TelegramOutbound(msg_id="m", text="boom"), "7", 99.0)
    (span,) = recorder.spans
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert not span.events
    assert "secret" not in span.to_json()


def test_the_urls_template_keeps_a_path_and_a_port_and_no_token():
    recorder = Recorder()
    tracing = Tracing("s", "d", "http://bots.example:8081/api", recorder.provider)
    tracing.watch(FakeApi(FakeSource())).send(TelegramOutbound(msg_id="m", text="t"), "7", 99.0)
    found = attributes(recorder.spans[0])
    assert found["url.template"] == "/api/bot{token}/sendMessage"
    assert (found["server.address"], found["server.port"]) == ("bots.example", 8081)


def test_without_a_provider_nothing_is_current_and_a_publishers_trace_still_is():
    tracing = untraced()
    assert tracing.received(make_delivery(1), SUBJECT) is None
    with tracing.within(None):
        assert context.get_current() == {}
    began = tracing.received(make_delivery(1, headers={"traceparent": TRACEPARENT}), SUBJECT)
    with tracing.within(began):
        found = trace.get_current_span().get_span_context()
    assert trace.format_trace_id(found.trace_id) == TRACE


class Broken(SpanProcessor):
    """A host's, with a bug."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise ZeroDivisionError("on_start")

    def on_end(self, span: Any) -> None:
        raise ZeroDivisionError("on_end")


class BrokenAtTheEnd(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise ZeroDivisionError("on_end")


class BrokenSpan(NonRecordingSpan):
    """A host's that raises whatever it is asked, as one that wraps another may."""

    def __init__(self) -> None:
        super().__init__(INVALID_SPAN_CONTEXT)

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("span")

    is_recording = get_span_context = set_attribute = set_status = end = _raise


class DeceptiveSpan(BrokenSpan):
    """One that fails only once it is used."""

    def is_recording(self) -> bool:
        return True

    def get_span_context(self) -> SpanContext:
        return INVALID_SPAN_CONTEXT


@pytest.mark.parametrize("kind", [BrokenSpan, DeceptiveSpan])
def test_spans_that_raise_cost_no_message(kind: type[BrokenSpan], caplog: pytest.LogCaptureFixture):
    class Provider(TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return self

        def start_span(self, *_: Any, **__: Any) -> Any:
            return kind()

    tracing = Tracing("s", "d", "https://api.telegram.org", Provider(shutdown_on_exit=False))
    source = FakeSource()
    delivery = make_delivery(1)

    class Api(FakeApi):
        def send(self, *arguments: Any, **named: Any) -> Any:
            super().send(*arguments, **named)
            return tracing.classify(200, {}, b'{"ok": true, "result": {"message_id": 5}}')

    with tracing.within(tracing.received(delivery, SUBJECT)):
        watched = tracing.watch(Api(source))
        # What was sent must not look like what has crashed: it would be sent again.
        assert watched.send(TelegramOutbound(msg_id="m", text="t"), "7", 99.0) == Sent(5)
        tracing.settling(delivery, Ack(), source.ack(delivery))
    assert len([r for r in caplog.records if "the tracer provider raised" in r.message]) == 1


@pytest.mark.parametrize("processor", [Broken, BrokenAtTheEnd])
def test_a_provider_that_raises_costs_no_message(
    processor: type[SpanProcessor], caplog: pytest.LogCaptureFixture
):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor())
    tracing = Tracing("s", "d", "https://api.telegram.org", provider)
    source = FakeSource()
    api = FakeApi(source)
    delivery = make_delivery(1)
    for _ in range(3):
        with tracing.within(tracing.received(delivery, SUBJECT)):
            assert tracing.watch(api).send(TelegramOutbound(msg_id="m", text="t"), "7", 99.0) is not None
            tracing.settling(delivery, Ack(), source.ack(delivery))
    assert len(api.sent) == 3
    assert len([r for r in caplog.records if "the tracer provider raised" in r.message]) == 1


def test_each_call_is_noted_with_what_it_came_to():
    noted: list[tuple[float, Any]] = []
    clock = iter((1.0, 3.5, 4.0, 4.25)).__next__
    api = FakeApi(FakeSource())
    api.script["no"] = [Terminal(403, "blocked")]
    tracing = Tracing(
        "s", "d", "https://x", None, lambda seconds, tried: noted.append((seconds, tried)), clock
    )
    watched = tracing.watch(api)
    for text in ("yes", "no"):
        watched.send(TelegramOutbound(msg_id="m", text=text), "7", 99.0)
    assert noted == [(2.5, Sent(1)), (0.25, Terminal(403, "blocked"))]


# Against a real server


def started(fleet: Fleet, recorder: Recorder) -> Relay:
    relay = Relay(fleet.settings(), fleet.observe, tracer_provider=recorder.provider)
    fleet._relays.append(relay)
    assert relay.start()
    return relay


@pytest.mark.integration
def test_one_trace_from_the_publisher_to_telegram(fleet: Fleet) -> None:
    recorder = Recorder()
    relay = started(fleet, recorder)
    host = recorder.provider.get_tracer("host")
    with (
        Publisher(fleet.server.settings(fleet.server.publisher_seed)) as publisher,
        host.start_as_current_span("order filled"),
    ):
        publisher.publish(TelegramOutbound(msg_id="m1", chat="100", text="the secret text", kind="trade"))
    fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    relay.stop(10)
    spans = recorder.spans
    assert len({trace_id(span) for span in spans}) == 1
    assert {span.name: parent_of(span, spans) for span in spans if span.parent} == {
        "receive": "order filled",
        "send_message": "receive",
        "classify_response": "send_message",
        "settle": "receive",
    }
    (send,) = recorder.named("send_message")
    found = attributes(send)
    assert send.kind is SpanKind.CLIENT
    assert send.status.status_code is StatusCode.UNSET
    assert found == {
        "http.request.method": "POST",
        "url.template": "/bot{token}/sendMessage",
        "server.address": "127.0.0.1",
        "server.port": fleet.sandbox.port,
        "http.response.status_code": 200,
        "messaging.message.id": "m1",
        "telegram_connector.chat": "100",
        "telegram_connector.disposition": "sent",
        "telegram_connector.reason": "ok",
    }
    (classified,) = recorder.named("classify_response")
    assert send.start_time <= classified.start_time <= classified.end_time <= send.end_time  # type: ignore[operator]
    for span in spans:
        for secret in ("secret", TOKEN, TOKEN.split(":")[1]):
            assert secret not in span.to_json()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fault", "error_type", "reason", "status"),
    [
        ("chat_blocked", "403", "refused", 403),
        ("flood", "429", "rate_limited", 429),
        ("srv_502_html", "502", "server_error", 502),
        ("bot_401", "401", "refused", 401),
        ("reset-after", "no_answer", "no_answer", None),
        ("amb_200_html", "200", "unreadable", 200),
    ],
)
def test_a_failed_send_is_an_error_with_its_type(
    fleet: Fleet, fault: str, error_type: str, reason: str, status: int | None
) -> None:
    recorder = Recorder()
    fleet.sandbox.set_fault(fault, times=1)
    relay = started(fleet, recorder)
    fleet.publish(TelegramOutbound(msg_id="m1", chat="100", text="hello"))
    fleet.until_event(events.Attempted)
    relay.stop(10)
    send = recorder.named("send_message")[0]
    found = attributes(send)
    assert send.status.status_code is StatusCode.ERROR
    assert send.status.description
    assert (found["error.type"], found["telegram_connector.reason"]) == (error_type, reason)
    assert found.get("http.response.status_code") == status
    classified = recorder.named("classify_response")
    assert len(classified) == (0 if status is None else len(recorder.named("send_message")))
    if classified:
        assert classified[0].status.status_code is StatusCode.ERROR


@pytest.mark.integration
def test_each_hand_over_is_in_the_same_trace(fleet: Fleet) -> None:
    recorder = Recorder()
    fleet.sandbox.set_fault("srv_502_html", chat=1, times=2)
    relay = started(fleet, recorder)
    with fleet.server.client(fleet.server.publisher_seed) as client:
        client.publish("telegram.outbound", b'{"msg_id":"a","text":"x"}', {"traceparent": TRACEPARENT})
    fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    relay.stop(10)
    assert {trace_id(span) for span in recorder.spans} == {TRACE}
    assert [attributes(s)["telegram_connector.hand_over"] for s in recorder.named("receive")] == [1, 2, 3]
    told = [attributes(span)["messaging.operation.name"] for span in recorder.named("settle")]
    assert told == ["nak", "nak", "ack"]


@pytest.mark.integration
def test_a_host_that_has_urllib3_instrumented_does_not_get_the_token(fleet: Fleet) -> None:
    recorder = Recorder()
    URLLib3Instrumentor().instrument(tracer_provider=recorder.provider)
    try:
        relay = started(fleet, recorder)
        fleet.publish(TelegramOutbound(msg_id="m1", chat="100", text="hello"))
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        relay.stop(10)
    finally:
        URLLib3Instrumentor().uninstrument()
    assert {span.name for span in recorder.spans} == {
        "receive",
        "send_message",
        "classify_response",
        "settle",
    }
    assert all(TOKEN not in span.to_json() for span in recorder.spans)


@pytest.mark.integration
def test_log_lines_of_a_message_name_its_trace(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "telegram_connector")
    recorder = Recorder()
    relay = Relay(fleet.settings(), tracer_provider=recorder.provider)
    with relay:
        with fleet.server.client(fleet.server.publisher_seed) as client:
            client.publish("telegram.outbound", b'{"msg_id":"a","text":"x"}', {"traceparent": TRACEPARENT})
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
    (sent,) = [r for r in caplog.records if r.getMessage() == "sent"]
    assert sent.trace_id == TRACE  # type: ignore[attr-defined]
