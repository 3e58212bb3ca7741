"""Deadlines of requests: how far away they are, and what is left."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.node.deadline import deadline_in, ms_until


@pytest.mark.parametrize(
    ("timeout_ms", "passes_ms", "at_least", "left_ms"),
    [
        (1_500, 0, 1, 1_500),
        (1_500, 400, 1, 1_100),
        (1_500, 1_500, 1, 1),
        (1_500, 1_500, 0, 0),
        (1_500, 9_000, 1, 1),
        (-5, 0, 0, 0),
    ],
)
async def test_the_time_until_a_deadline_falls_to_the_least(
    timeout_ms: int, passes_ms: int, at_least: int, left_ms: int
) -> None:
    deadline = deadline_in(timeout_ms)
    await asyncio.sleep(passes_ms / 1000)
    assert ms_until(deadline, at_least=at_least) == left_ms
