"""The operations for monitoring: probes, version and metrics."""

from __future__ import annotations

from raftlog.wire import bodies, media_types
from raftlog.wire.operation import TEXT, Nothing, Operation, Success

LIVE = Operation(
    name="health.live",
    request="GET /healthz/live",
    summary="Check that the process is alive",
    text="If a check fails, restart the process.",
    answer=bodies.BrokerHealth,
    success={200: "all checks passed", 503: "a check failed"},
)

READY = Operation(
    name="health.ready",
    request="GET /healthz/ready",
    summary="Check that the broker can serve requests",
    text="If a check fails, send requests to another broker.",
    answer=bodies.BrokerHealth,
    success={200: "all checks passed", 503: "a check failed"},
)

STARTUP = Operation(
    name="health.startup",
    request="GET /healthz/startup",
    summary="Check that the broker has started",
    text="If a check fails, wait.",
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
    summary="Get metrics",
    text="In the OpenMetrics text format, regardless of `Accept`.",
    answer=Nothing,
    success={200: Success("all metrics of this broker", {media_types.OPENMETRICS: TEXT})},
)
