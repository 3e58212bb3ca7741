"""One line per reason and interval, which says how many were left out."""

from __future__ import annotations

from raftlog.log_limit import LogLimit


def test_a_flood_costs_a_line_per_reason_and_interval() -> None:
    now = 5.0
    limit = LogLimit(lambda: now, interval_s=10.0)
    told = [limit.left_out("flood") for _ in range(1000)]
    assert told == [0] + [None] * 999
    assert limit.left_out("other") == 0
    now = 14.9
    assert limit.left_out("flood") is None
    now = 15.0
    assert limit.left_out("flood") == 1000
    assert limit.left_out("flood") is None
