"""OpenTelemetry spans of clients and brokers, if ``opentelemetry-api`` is installed.

Decides: which spans exist, their names and attributes (the semantic conventions for messaging and for HTTP),
and where a trace context travels: in the header ``traceparent`` of a request, and in the record header
``traceparent``. Leaves to others: sampling and export, which the application configures
(``opentelemetry-sdk``).

The SDK runs functions of the user, such as samplers and span processors. An error that such a function raises
is logged once and reaches no caller: see ``_guarded``.

Without ``opentelemetry-api`` ``TRACER`` is None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from traceback import format_tb
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from raftlog.client.logs import client_logger
from raftlog.client.user_code import described

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.trace import Link, Span, SpanContext, Tracer

try:
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    TRACER: Tracer | None = None
else:
    TRACER = trace.get_tracer("raftlog")
    _PROPAGATOR = TraceContextTextMapPropagator()

TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"
LINKS_MAX: Final = 128  # per span; the default limit of SDKs
Result = TypeVar("Result")
_log = client_logger(__name__)
_logged: set[tuple[str, type[BaseException]]] = set()

Headers = Sequence[tuple[str, bytes | None]]


class Traced(Protocol):
    """A record or a message, with its headers."""

    @property
    def headers(self) -> Headers: ...


def now_ns() -> int:
    """The current time in nanoseconds since 1970: the start of a span."""
    return time.time_ns()


def is_active() -> bool:
    """Whether an SDK is configured, so that spans are recorded. Busy objects ask only at their creation."""
    return TRACER is not None and not (
        isinstance(TRACER, trace.ProxyTracer)
        and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    )


def _active() -> Tracer | None:
    """The tracer if an SDK records spans, else None: without an SDK the headers of records are not read."""
    return TRACER if is_active() else None


def _guarded(what: str, act: Callable[..., Result], *args: object) -> Result | None:
    """Call a function that uses the SDK and return its result; None if the function raises an error.

    Only the first error is logged. Only a ``KeyboardInterrupt`` in the main thread is raised again.
    """
    try:
        return act(*args)
    except BaseException as error:
        kind = type(error)
        if issubclass(kind, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        if (what, kind) not in _logged:
            _logged.add((what, kind))
            _log.warning(
                "the SDK of OpenTelemetry did not %s, and later failures of this kind are not logged: %s\n%s",
                *(what, described(error), "".join(format_tb(error.__traceback__))),
            )
        return None


class _Spanned:
    """A span that is current inside a ``with`` block. An error in the block sets its status."""

    def __init__(self, start: Callable[[], Span]) -> None:
        self._start = start
        self._begun: tuple[Span, Token[context.Context]] | None = None

    def __enter__(self) -> None:
        self._begun = _guarded("start a span", self._begin)

    def _begin(self) -> tuple[Span, Token[context.Context]]:
        span = self._start()
        return span, context.attach(trace.set_span_in_context(span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._begun is None:
            return
        span, token = self._begun
        _guarded("leave a span", context.detach, token)
        if kind is not None and error is not None and issubclass(kind, Exception):
            status = trace.Status(trace.StatusCode.ERROR, described(error))
            _guarded("set the status of a span", span.set_status, status)
            _guarded("record an exception", span.record_exception, error)
        _guarded("end a span", span.end)


# Clients.


class Created(NamedTuple):
    """The span of a record that is sent, and the headers of the record."""

    span: Span
    headers: tuple[tuple[str, bytes | None], ...]

    def end(self) -> None:
        """End the span: a broker has accepted the record."""
        _guarded("end a span", self.span.end)


def create(topic: str, headers: tuple[tuple[str, bytes | None], ...]) -> Created | None:
    """Create a span for a record that will be sent, and add the span's context to the record's headers.

    None if the record already has a context, or if there is no SDK. The caller must end the span.
    """
    return _guarded("start a span", _create, topic, headers)


def _create(topic: str, headers: tuple[tuple[str, bytes | None], ...]) -> Created | None:
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
    """The span of one attempt to send a batch, linked to its records' spans; current in a ``with`` block."""
    if (tracer := _active()) is None:
        return nullcontext()
    attributes = {
        **_messaging("send", topic, "send", partition),
        "messaging.batch.message_count": len(records),
    }
    kind, links = trace.SpanKind.CLIENT, _links(records)
    return _Spanned(
        partial(tracer.start_span, f"send {topic}", kind=kind, attributes=attributes, links=links)
    )


def fetched(topic: str, partition: int, messages: Sequence[Traced], began_ns: int) -> None:
    """Record the span of a fetch, linked to the spans in which its messages were created."""
    if not messages or (tracer := _active()) is None:
        return
    attributes = _messaging("fetch", topic, "receive", partition)
    attributes["messaging.batch.message_count"] = len(messages)
    start = partial(
        tracer.start_span,
        f"fetch {topic}",
        kind=trace.SpanKind.CLIENT,
        attributes=attributes,
        links=_links(messages),
        start_time=began_ns,
    )
    _guarded("record a span", lambda: start().end())


def committing(group: str) -> AbstractContextManager[object]:
    """The span of a commit of offsets."""
    if (tracer := _active()) is None:
        return nullcontext()
    attributes = {
        "messaging.system": "raftlog",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.consumer.group.name": group,
    }
    return _Spanned(
        partial(tracer.start_span, f"commit {group}", kind=trace.SpanKind.CLIENT, attributes=attributes)
    )


def processing(
    topic: str, partition: int, offset: int, message: Traced, group: str
) -> AbstractContextManager[object]:
    """The span of one run of a handler, linked to the span in which its message was created."""
    if (tracer := _active()) is None:
        return nullcontext()
    attributes = {
        **_messaging("process", topic, "process", partition),
        "messaging.consumer.group.name": group,
        "messaging.raftlog.offset": offset,
    }
    kind, links = trace.SpanKind.CONSUMER, _links((message,))
    return _Spanned(
        partial(tracer.start_span, f"process {topic}", kind=kind, attributes=attributes, links=links)
    )


def inject(headers: dict[str, str]) -> None:
    """Add the current trace context to the headers of a request."""
    if is_active():
        _guarded("read the current context", _PROPAGATOR.inject, headers)


# Brokers.


def served(method: str, route: str, status: int, headers: Mapping[str, str], seconds: float) -> None:
    """Record the span of a request that was answered after ``seconds``, as a child of the client's span."""
    _guarded("record a span", _served, method, route, status, headers, seconds)


def _served(method: str, route: str, status: int, headers: Mapping[str, str], seconds: float) -> None:
    assert TRACER is not None
    sent = {name: headers[name] for name in (TRACE_PARENT, TRACE_STATE) if name in headers}
    ended_ns = time.time_ns()
    span = TRACER.start_span(
        f"{method} {route}",
        context=_PROPAGATOR.extract(sent, context.Context()),
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
    """Links to the trace contexts in the headers of records: the first ``LINKS_MAX`` contexts at most."""
    links: list[Link] = []
    for record in records:
        found = _context_of(record.headers)
        if found is not None:
            links.append(trace.Link(found))
            if len(links) == LINKS_MAX:
                break
    return links


def _context_of(headers: Headers) -> SpanContext | None:
    """The trace context in the headers of a record; None if there is no valid context."""
    carrier = {
        name: value.decode(errors="replace")
        for name, value in headers
        if value is not None and name in (TRACE_PARENT, TRACE_STATE)
    }
    if TRACE_PARENT not in carrier:
        return None
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, context.Context())).get_span_context()
    return found if found.is_valid else None
