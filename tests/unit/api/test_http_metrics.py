"""Requests and their durations, as a scrape sees them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from api.resources.metrics import Answered

SECONDS = "raftlog_http_request_seconds"
OF_READS = {"method": "GET", "route": "/v1/topics"}


def test_a_duration_counts_up_to_its_bound_and_all_above() -> None:
    answered, registry = Answered(), CollectorRegistry()
    registry.register(answered)
    for status, seconds in ((200, 0.0005), (200, 0.3), (404, 100.0)):
        answered.add("GET", "/v1/topics", status, seconds)
    answered.add("POST", "/v1/topics", 201, 0.2)

    def up_to(bound: str) -> float | None:
        return registry.get_sample_value(f"{SECONDS}_bucket", {**OF_READS, "le": bound})

    assert [up_to(bound) for bound in ("0.0005", "0.25", "0.5", "60.0", "+Inf")] == [1, 1, 2, 2, 3]
    assert registry.get_sample_value(f"{SECONDS}_count", OF_READS) == 3
    assert registry.get_sample_value(f"{SECONDS}_sum", OF_READS) == 100.3005
    counted = registry.get_sample_value("raftlog_http_requests_total", {**OF_READS, "status": "200"})
    assert counted == 2
