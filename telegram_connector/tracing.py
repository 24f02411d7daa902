"""Spans through OpenTelemetry's API: `receive`, `send_message`, `classify_response`, `settle`.

A publisher's `traceparent` is continued: one trace from the publisher to Telegram's answer. Where nobody
has set a provider there is next to nothing to do. No span holds the bot token (the URL is given as a
template) or a message's text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    NoOpTracer,
    NoOpTracerProvider,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

from telegram_connector import __version__
from telegram_connector.attempt import BotApi
from telegram_connector.classify import classify
from telegram_connector.delivery import Ack, Command, Delivery, Nak
from telegram_connector.disposition import Sent, Tried
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.events import Subject
from telegram_connector.fence import Fence
from telegram_connector.instruments import verdict
from telegram_connector.traceparent import continued

MAX_DESCRIPTION = 200
MAX_CHOSEN = 200  # characters of what publishers choose; a collector refuses a batch that is too large
_SCHEMA = "https://opentelemetry.io/schemas/1.30.0"

Attributes = dict[str, AttributeValue]


class Tracing:
    """Makes the spans of one relay.

    Args:
        subject: Where the messages are published.
        durable: The consumer.
        api_base_url: The Bot API server.
        provider: OpenTelemetry's; None for the global one, also where the host sets it later.
        note_send: Called with the seconds and the outcome of each call of sendMessage.
    """

    def __init__(
        self,
        subject: str,
        durable: str,
        api_base_url: str,
        provider: TracerProvider | None = None,
        note_send: Callable[[float, Tried], None] = lambda _seconds, _tried: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        get_tracer = trace.get_tracer if provider is None else provider.get_tracer
        self._fence = Fence("the tracer provider")
        self._tracer: Tracer = NoOpTracer()
        with self._fence:
            self._tracer = get_tracer("telegram_connector", __version__, schema_url=_SCHEMA)
        self._note_send = note_send
        self._clock = clock
        self._of_queue: Attributes = {
            "messaging.system": "nats",
            "messaging.destination.name": subject,
            "messaging.consumer.group.name": durable,
        }
        api = urlsplit(api_base_url)
        self._of_api: Attributes = {
            "http.request.method": "POST",
            "url.template": f"{api.path}/bot{{token}}/sendMessage",
            "server.address": api.hostname or "",
            "server.port": api.port or (443 if api.scheme == "https" else 80),
        }

    # What the worker and the bridge call

    def received(self, delivery: Delivery, subject: Subject) -> object:
        """Note that a delivery was taken in; returns what `within` takes, for what follows of it."""
        parent = continued(delivery.headers)
        attributes: Attributes = {
            **self._of_queue,
            "messaging.operation.name": "receive",
            "messaging.operation.type": "receive",
            "messaging.message.id": subject.nats_msg_id[:MAX_CHOSEN],
            "messaging.message.body.size": len(delivery.payload),
            "telegram_connector.stream_seq": delivery.id.sequence,
            "telegram_connector.hand_over": delivery.hand_over,
            "telegram_connector.chat": subject.chat,
        }
        if subject.kind is not None:
            attributes["telegram_connector.kind"] = subject.kind[:MAX_CHOSEN]
        span = self._start("receive", parent, SpanKind.CONSUMER, attributes)
        here = INVALID_SPAN_CONTEXT
        with self._fence:
            here = span.get_span_context()
            span.end()
        if not here.is_valid:  # nobody's provider, yet it may be somebody's trace
            here = trace.get_current_span(parent).get_span_context()
        # Its context alone: the span itself would stay in memory for as long as the message waits.
        return trace.set_span_in_context(NonRecordingSpan(here), Context()) if here.is_valid else None

    @contextmanager
    def within(self, received: object) -> Iterator[None]:
        """Let what happens here be part of the trace that `received` has begun."""
        if not isinstance(received, Context):
            yield
            return
        token = context.attach(received)
        try:
            yield
        finally:
            context.detach(token)

    def watch(self, api: BotApi) -> BotApi:
        """The same client, its sends in spans."""
        return _WatchedApi(api, self)

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Tried:
        """`classify`, in a span of its own within that of the request."""
        parent, recording = trace.get_current_span(), False
        with self._fence:
            recording = parent.is_recording()
            parent.set_attribute("http.response.status_code", status)
        if not recording:
            return classify(status, headers, body)
        span = self._start(
            "classify_response", None, SpanKind.INTERNAL, {"http.response.status_code": status}
        )
        with self._ended(span):
            tried = classify(status, headers, body)
            self._conclude(span, tried)
            return tried

    def settling(self, delivery: Delivery, command: Command, confirmed: Future[bool]) -> None:
        """Note that a delivery is being settled, until `confirmed`."""
        here = context.get_current()
        parent = (
            here if trace.get_current_span(here).get_span_context().is_valid else continued(delivery.headers)
        )
        name = "ack" if isinstance(command, Ack) else "nak" if isinstance(command, Nak) else "term"
        attributes: Attributes = {
            **self._of_queue,
            "messaging.operation.name": name,
            "messaging.operation.type": "settle",
            "telegram_connector.stream_seq": delivery.id.sequence,
        }
        if isinstance(command, Nak):
            attributes["telegram_connector.delay_seconds"] = command.delay_seconds
        span = self._start("settle", parent, SpanKind.CLIENT, attributes)
        with self._fence:
            if not span.is_recording():
                return
            confirmed.add_done_callback(lambda future: self._settled(span, future))

    # Inside

    def sending(
        self, api: BotApi, envelope: TelegramOutbound, chat: str, deadline: float, number: int | None
    ) -> Tried:
        attributes: Attributes = {
            **self._of_api,
            "messaging.message.id": envelope.msg_id[:MAX_CHOSEN],
            "telegram_connector.chat": chat,
        }
        span = self._start("send_message", None, SpanKind.CLIENT, attributes)
        with self._ended(span):
            started = self._clock()
            tried = api.send(envelope, chat, deadline, number=number)
            with self._fence:
                self._note_send(self._clock() - started, tried)
            self._conclude(span, tried)
            return tried

    def _start(self, name: str, parent: Context | None, kind: SpanKind, attributes: Attributes) -> Span:
        with self._fence:
            return self._tracer.start_span(name, context=parent, kind=kind, attributes=attributes)
        return INVALID_SPAN

    @contextmanager
    def _ended(self, span: Span) -> Iterator[None]:
        """Let the span be the current one, and end it; an exception of ours goes on."""
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
        except Exception as error:
            with self._fence:
                # Not `record_exception`: a traceback says more than an operator's collector is to know.
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
            raise
        finally:
            context.detach(token)
            with self._fence:
                span.end()

    def _conclude(self, span: Span, tried: Tried) -> None:
        disposition, reason = verdict(tried)
        with self._fence:
            if not span.is_recording():
                return
            span.set_attribute("telegram_connector.disposition", disposition)
            span.set_attribute("telegram_connector.reason", reason)
            if isinstance(tried, Sent):
                return
            status = getattr(tried, "status_code", None) or getattr(tried, "error_code", None)
            span.set_attribute("error.type", str(status) if status else reason)
            span.set_status(StatusCode.ERROR, tried.description[:MAX_DESCRIPTION])

    def _settled(self, span: Span, future: Future[bool]) -> None:
        with self._fence:
            if future.cancelled():
                span.set_attribute("telegram_connector.confirmed", False)
            elif (error := future.exception()) is not None:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
            else:
                span.set_attribute("telegram_connector.confirmed", future.result())
            span.end()


def untraced() -> Tracing:
    """One whose spans go nowhere."""
    return Tracing("", "", "", NoOpTracerProvider())


class _WatchedApi:
    """A `BotApi` whose sends are spans."""

    def __init__(self, api: BotApi, tracing: Tracing) -> None:
        self._api = api
        self._tracing = tracing

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Tried:
        return self._tracing.sending(self._api, envelope, chat_id, deadline, number)

    def get_me(self, deadline: float, *, number: int | None = None) -> Tried:
        return self._api.get_me(deadline, number=number)

    def abort(self, number: int | None = None) -> bool:
        return self._api.abort(number)

    def close(self) -> None:
        self._api.close()
