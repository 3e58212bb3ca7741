"""HTTP metrics, and the page with all metrics of the broker.

Decides: the names of the HTTP metrics. Other modules register theirs in the same registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from api.http.admission import Admission
from api.http.disconnects import DisconnectWatcher
from api.http.routes import TEXT, Answer, Call, Route
from api.http.services import Services
from raftlog.wire import media_types, paths

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class HttpMetrics:
    """Requests by route, method and status, their duration, and the resources that they hold."""

    def __init__(
        self, services: Services, admission: Admission, disconnect_watcher: DisconnectWatcher
    ) -> None:
        registry = services.registry
        self._requests = Counter(
            "raftlog_http_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "raftlog_http_request_seconds",
            "Time from the head of a request to its response.",
            ("method", "route"),
            buckets=SECONDS,
            registry=registry,
        )
        body_bytes = Gauge(
            "raftlog_http_body_bytes", "Bytes of request bodies being handled.", registry=registry
        )
        body_bytes.set_function(lambda: admission.bodies.total)
        parked = Gauge(
            "raftlog_http_parked_requests", "Waiting long polls and event streams.", registry=registry
        )
        parked.set_function(lambda: len(disconnect_watcher))
        self._connections = Gauge("raftlog_http_connections", "Open HTTP connections.", registry=registry)
        self._refused = Counter(
            "raftlog_http_connections_refused",
            "Connections refused because of limits.connections_max.",
            registry=registry,
        )
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._timers: dict[tuple[str, str], Histogram] = {}

    def watch_connections(self, count: Callable[[], int]) -> None:
        """``count`` returns the number of connections."""
        self._connections.set_function(count)

    def connection_refused(self) -> None:
        """One connection was refused."""
        self._refused.inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request is complete. Child metrics are cached, since looking them up takes a lock."""
        counter = self._counters.get((method, route, status))
        if counter is None:
            counter = self._requests.labels(method, route, str(status))
            self._counters[method, route, status] = counter
        timer = self._timers.get((method, route))
        if timer is None:
            timer = self._timers[method, route] = self._seconds.labels(method, route)
        counter.inc()
        timer.observe(seconds)


class Collected(Collector):
    """The values of a registry, collected on the event loop, which owns the broker's parts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._metrics = list(registry.collect())

    def collect(self) -> Iterable[Metric]:
        """The same on any thread."""
        return self._metrics


async def metrics(call: Call) -> web.StreamResponse:
    """All metrics. Formatting many partitions takes long, so it runs on a thread."""
    text = await asyncio.to_thread(generate_latest, Collected(call.services.registry))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


ROUTES = (
    Route(
        "GET",
        paths.METRICS,
        metrics,
        "Metrics",
        "In the OpenMetrics text format, regardless of `Accept`.",
        answers={200: Answer("all metrics of this broker", {media_types.OPENMETRICS: TEXT})},
        negotiated=False,
    ),
)
