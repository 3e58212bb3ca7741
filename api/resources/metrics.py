"""HTTP metrics, and the page with all metrics of the broker.

Decides: the names of the HTTP metrics. Other modules register theirs in the same registry.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
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
        answered = Answered()
        registry.register(answered)
        self.answered = answered.add
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
            "Connections refused because of limits.connections_max or limits.connections_client_max.",
            registry=registry,
        )

    def watch_connections(self, count: Callable[[], int]) -> None:
        """``count`` returns the number of connections."""
        self._connections.set_function(count)

    def connection_refused(self) -> None:
        """One connection was refused."""
        self._refused.inc()


class Answered(Collector):
    """The requests answered so far. Added up here: the library takes ten calls and three locks for each."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[tuple[str, str], _Times] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request is complete."""
        request = method, route, status
        self._counts[request] = self._counts.get(request, 0) + 1
        times = self._times.get(request[:2])
        if times is None:
            times = self._times[request[:2]] = _Times()
        times.sum_s += seconds
        times.counts[bisect_left(SECONDS, seconds)] += 1

    def collect(self) -> Iterator[Metric]:
        """The current values."""
        requests = CounterMetricFamily(
            "raftlog_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in self._counts.items():
            requests.add_metric([method, route, str(status)], count)
        yield requests
        durations = HistogramMetricFamily(
            "raftlog_http_request_seconds",
            "Time from the head of a request to its response.",
            labels=["method", "route"],
        )
        for labels, times in self._times.items():
            durations.add_metric(labels, _buckets(times.counts), times.sum_s)
        yield durations


class _Times:
    """Durations of requests: how many lie up to each bound of ``SECONDS``, and above the one before."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.sum_s = 0.0
        self.counts = [0] * (len(SECONDS) + 1)


def _buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """The counts as Prometheus has them: up to each bound, and up to any."""
    bounds = [*map(str, SECONDS), "+Inf"]
    return [*zip(bounds, accumulate(counts), strict=True)]


class Collected(Collector):
    """Values that were collected before."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """The same on any thread."""
        return self._metrics


async def collected(registry: CollectorRegistry) -> Collected:
    """The values of a registry, from the event loop, which owns the broker's parts.

    Many metrics are sums over thousands of groups, so each takes a turn of the loop.
    """
    metrics = []
    for metric in registry.collect():
        metrics.append(metric)
        await asyncio.sleep(0)
    return Collected(metrics)


async def metrics(call: Call) -> web.StreamResponse:
    """All metrics. Formatting many partitions takes long, so it runs on a thread."""
    text = await asyncio.to_thread(generate_latest, await collected(call.services.registry))
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
