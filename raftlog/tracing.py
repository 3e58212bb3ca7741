"""Spans of OpenTelemetry, if ``opentelemetry-api`` is installed: clients and brokers.

Decides: which spans there are, their names and attributes (the semantic conventions for messaging and for
HTTP), and where a trace context travels: in the header ``traceparent`` of a request, and in a record header
of this name. Leaves to others: sampling and export, which the application configures (``opentelemetry-sdk``).

``TRACER`` is None without the package.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    TRACER: Tracer | None = None
else:
    TRACER = trace.get_tracer("raftlog")
    _PROPAGATOR = TraceContextTextMapPropagator()

TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"
LINKS_MAX: Final = 128  # of one span; the default limit of SDKs

Headers = Sequence[tuple[str, bytes | None]]


class Traced(Protocol):
    """A record, or a message that was read."""

    @property
    def headers(self) -> Headers: ...


def now_ns() -> int:
    """The time at which a span begins."""
    return time.time_ns()


def is_active() -> bool:
    """Whether spans are kept: an SDK is configured. Parts with many calls ask when they are made."""
    return TRACER is not None and not (
        isinstance(TRACER, trace.ProxyTracer)
        and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    )


# Clients.


class Created(NamedTuple):
    """The span of a record that is sent, and the headers of the record."""

    span: Span
    headers: tuple[tuple[str, bytes | None], ...]


def create(topic: str, headers: tuple[tuple[str, bytes | None], ...]) -> Created | None:
    """A span for a record that is sent, and its headers with the context of the span.

    None for a record that has a context, or without an SDK. The span counts once its caller ends it.
    """
    assert TRACER is not None
    if any(name == TRACE_PARENT for name, _ in headers):
        return None
    attributes = _messaging("create", topic, "create")
    span = TRACER.start_span(f"create {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes)
    if not span.get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return Created(span, (*headers, *((name, value.encode()) for name, value in carrier.items())))


def sending(topic: str, partition: int, records: Sequence[Traced]) -> AbstractContextManager[object]:
    """The span of one attempt to send a batch, linked to those of its records. It is current in the block."""
    if TRACER is None:
        return nullcontext()
    attributes = {
        **_messaging("send", topic, "send", partition),
        "messaging.batch.message_count": len(records),
    }
    return TRACER.start_as_current_span(
        f"send {topic}", kind=trace.SpanKind.CLIENT, attributes=attributes, links=_links(records)
    )


def fetched(topic: str, partition: int, messages: Sequence[Traced], began_ns: int) -> None:
    """A fetch has returned messages: a span linked to those in which they were created."""
    if TRACER is None or not messages:
        return
    attributes = _messaging("fetch", topic, "receive", partition)
    attributes["messaging.batch.message_count"] = len(messages)
    TRACER.start_span(
        f"fetch {topic}",
        kind=trace.SpanKind.CLIENT,
        attributes=attributes,
        links=_links(messages),
        start_time=began_ns,
    ).end()


def committing(group: str) -> AbstractContextManager[object]:
    """The span of a commit of offsets."""
    if TRACER is None:
        return nullcontext()
    attributes = {
        "messaging.system": "raftlog",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.consumer.group.name": group,
    }
    return TRACER.start_as_current_span(f"commit {group}", kind=trace.SpanKind.CLIENT, attributes=attributes)


def processing(
    topic: str, partition: int, offset: int, message: Traced, group: str
) -> AbstractContextManager[object]:
    """The span of one run of a handler, linked to the one in which its message was created."""
    if TRACER is None:
        return nullcontext()
    attributes = {
        **_messaging("process", topic, "process", partition),
        "messaging.consumer.group.name": group,
        "messaging.raftlog.offset": offset,
    }
    return TRACER.start_as_current_span(
        f"process {topic}", kind=trace.SpanKind.CONSUMER, attributes=attributes, links=_links((message,))
    )


def inject(headers: dict[str, str]) -> None:
    """Add the current trace context to the headers of a request."""
    if TRACER is not None:
        _PROPAGATOR.inject(headers)


# Brokers.


def served(method: str, route: str, status: int, headers: Mapping[str, str], seconds: float) -> None:
    """A request was answered after ``seconds``: its span, a child of that of its client."""
    assert TRACER is not None
    sent = {name: headers[name] for name in (TRACE_PARENT, TRACE_STATE) if name in headers}
    ended_ns = time.time_ns()
    span = TRACER.start_span(
        f"{method} {route}",
        context=_PROPAGATOR.extract(sent, Context()),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method, "http.route": route, "http.response.status_code": status},
        start_time=ended_ns - int(seconds * 1e9),
    )
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)
    span.end(ended_ns)


def _messaging(operation: str, topic: str, kind: str, partition: int | None = None) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": "raftlog",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
    if partition is not None:
        found["messaging.destination.partition.id"] = str(partition)
    return found


def _links(records: Iterable[Traced]) -> list[Link]:
    """To the contexts that records have in their headers, the first ones of many."""
    links: list[Link] = []
    for record in records:
        context = _context_of(record.headers)
        if context is not None:
            links.append(trace.Link(context))
            if len(links) == LINKS_MAX:
                break
    return links


def _context_of(headers: Headers) -> SpanContext | None:
    """The trace context of a record; None without a valid one."""
    carrier = {
        name: value.decode(errors="replace")
        for name, value in headers
        if value is not None and name in (TRACE_PARENT, TRACE_STATE)
    }
    if TRACE_PARENT not in carrier:
        return None
    context = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return context if context.is_valid else None
