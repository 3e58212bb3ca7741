"""Counts HTTP requests, and serves the page with all metrics of the broker.

Decides: the names of the HTTP metrics. Other modules register their metrics in the same registry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from aiohttp import web
from prometheus_client import Counter, Gauge, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from api.http.disconnects import DisconnectWatcher
from api.http.routes import Call, Route
from api.http.streaming import abort, write
from broker.listeners.admission import Admission
from broker.metrics.exposition import exposition
from broker.ports import Services
from raftlog.durations import Durations
from raftlog.wire import health

_LOG = logging.getLogger("raftlog.api")

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class HttpMetrics:
    """Metrics of HTTP requests by route, method and status, of their duration, and of the resources that they
    use.
    """

    def __init__(
        self, services: Services, admission: Admission, disconnect_watcher: DisconnectWatcher
    ) -> None:
        registry = services.registry
        answered = Answered()
        registry.register(answered)
        registry.register(_State(services))
        self.answered, self.problem = answered.add, answered.add_problem
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
        """Take the function ``count``, which returns the number of open connections."""
        self._connections.set_function(count)

    def connection_refused(self) -> None:
        """Count one refused connection."""
        self._refused.inc()


class Answered(Collector):
    """Counts answered requests, without the counters of the metrics library, which need ten calls and three
    locks for each request.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._problems: dict[str, int] = {}
        self._times: dict[tuple[str, str], Durations] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a completed request, with the time that it took."""
        request = method, route, status
        self._counts[request] = self._counts.get(request, 0) + 1
        times = self._times.get(request[:2])
        if times is None:
            times = self._times[request[:2]] = Durations(SECONDS)
        times.add(seconds)

    def add_problem(self, code: str) -> None:
        """Count a response that is a problem document."""
        self._problems[code] = self._problems.get(code, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        problems = CounterMetricFamily("raftlog_http_problems", "Problems answered.", labels=["code"])
        for code, count in self._problems.items():
            problems.add_metric([code], count)
        yield problems
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
            durations.add_metric(labels, times.buckets, times.sum_s)
        yield durations


class _State(Collector):
    """Collector of the metrics for the running release and for the readiness of the broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        build = GaugeMetricFamily("raftlog_build_info", "Always 1; the release.", labels=["version"])
        build.add_metric([self._services.version], 1)
        yield build
        ready = GaugeMetricFamily(
            "raftlog_ready", "1 where a condition of /healthz/ready is met.", labels=["check"]
        )
        for check, is_met in self._services.health.ready().items():
            ready.add_metric([check], int(is_met))
        yield ready


async def metrics(call: Call) -> web.StreamResponse:
    """Send all metrics, generated in pieces. A complete text ends with ``# EOF``."""
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
    call.stamp(response)
    assert isinstance(call.request, web.BaseRequest)  # this route is streamed
    try:
        await response.prepare(call.request)
        if call.request.method != "HEAD":
            async for text in exposition(call.services.registry):
                await write(call, response, text)
    except (ConnectionError, TimeoutError):
        response.force_close()  # close without waiting for the client
    except Exception:
        _LOG.exception("request %s: the metrics cannot be read", call.request_id)
        abort(call)
    return response


ROUTES = (Route(health.METRICS, metrics, negotiated=False, is_streamed=True),)
