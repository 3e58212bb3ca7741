"""The delay of the event loop is a metric, with and without the time that it had no processor."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from api.loop_delay import INTERVAL_S, LoopDelay, waited_for_processor_s
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.virtual_time import VirtualLoop


def block(seconds: float) -> None:
    """Time passes in a callback."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.skip(seconds)


@in_virtual_time
async def test_a_blocked_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    monkeypatch.setattr("api.loop_delay.waited_for_processor_s", lambda: 0.0)

    def counted(bucket: str, what: str = "delay") -> float:
        return registry.get_sample_value(f"raftlog_event_loop_{what}_seconds_bucket", {"le": bucket}) or 0.0

    delay = LoopDelay(registry)
    await asyncio.sleep(0)
    block(INTERVAL_S + 0.3)
    while counted("+Inf") == 0:
        await asyncio.sleep(0.001)
    assert counted("0.25") == 0
    assert counted("0.1", "held") == 0
    assert counted("+Inf", "held") == 1
    delay.stop()


@in_virtual_time
async def test_a_loop_that_had_no_processor_was_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    waits = iter([0.0, 0.3, 0.3])
    monkeypatch.setattr("api.loop_delay.waited_for_processor_s", lambda: next(waits))

    def counted(bucket: str, what: str) -> float:
        return registry.get_sample_value(f"raftlog_event_loop_{what}_seconds_bucket", {"le": bucket}) or 0.0

    delay = LoopDelay(registry)
    await asyncio.sleep(0)
    block(INTERVAL_S + 0.2)
    while counted("+Inf", "delay") == 0:
        await asyncio.sleep(0.001)
    delay.stop()
    assert counted("0.1", "delay") == 0
    assert counted("0.001", "held") == 1


def test_the_system_tells_how_long_a_thread_waited() -> None:
    before = waited_for_processor_s()
    assert 0 <= before <= waited_for_processor_s()
