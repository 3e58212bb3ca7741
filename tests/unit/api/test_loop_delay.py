"""The delay of the event loop is a metric."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from api.loop_delay import INTERVAL_S, LoopDelay


def test_a_blocked_loop_is_seen() -> None:
    registry = CollectorRegistry()

    def counted(bucket: str) -> float:
        return registry.get_sample_value("raftlog_event_loop_delay_seconds_bucket", {"le": bucket}) or 0.0

    async def story() -> None:
        delay = LoopDelay(registry)
        await asyncio.sleep(0)
        time.sleep(INTERVAL_S + 0.3)  # this is the block
        while counted("+Inf") == 0:
            await asyncio.sleep(0.001)
        assert counted("0.25") == 0
        delay.stop()

    asyncio.run(story())
