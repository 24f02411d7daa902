"""The W3C trace context in a message's headers: how a publisher's trace goes on in the connector."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# Not the host's propagators: baggage is no part of the wire contract, and would be stored with dead letters.
_W3C = TraceContextTextMapPropagator()
_NAMES = ("traceparent", "tracestate")


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that continue the current span's trace; none without a span, or where `headers` has its own."""
    if any(name.lower() == "traceparent" for name in headers):
        return {}
    found: dict[str, str] = {}
    _W3C.inject(found)
    return found


def continued(headers: Mapping[str, str]) -> Context:
    """The context that `headers` continue, their names as any client may spell them; else an empty one."""
    if not headers:
        return Context()
    carrier = {name.lower(): value for name, value in headers.items() if name.lower() in _NAMES}
    return _W3C.extract(carrier, Context()) if carrier else Context()
