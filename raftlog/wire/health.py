"""The operations for those who watch a broker: probes, version and metrics."""

from __future__ import annotations

from raftlog.wire import bodies, media_types
from raftlog.wire.operation import TEXT, Nothing, Operation, Success

LIVE = Operation(
    name="health.live",
    request="GET /healthz/live",
    summary="Check that the process is alive",
    text="Restart it otherwise.",
    answer=bodies.BrokerHealth,
    success={200: "all checks passed", 503: "a check failed"},
)

READY = Operation(
    name="health.ready",
    request="GET /healthz/ready",
    summary="Check that the broker can serve requests",
    text="Send requests to another broker otherwise.",
    answer=bodies.BrokerHealth,
    success={200: "all checks passed", 503: "a check failed"},
)

STARTUP = Operation(
    name="health.startup",
    request="GET /healthz/startup",
    summary="Check that the broker has started",
    text="Wait otherwise.",
    answer=bodies.BrokerHealth,
    success={200: "all checks passed", 503: "a check failed"},
)

VERSION = Operation(
    name="health.version",
    request="GET /version",
    summary="Show the version",
    answer=bodies.Version,
    success={200: "the version"},
)

METRICS = Operation(
    name="health.metrics",
    request="GET /metrics",
    summary="Metrics",
    text="In the OpenMetrics text format, regardless of `Accept`.",
    answer=Nothing,
    success={200: Success("all metrics of this broker", {media_types.OPENMETRICS: TEXT})},
)
