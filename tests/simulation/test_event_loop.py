"""The simulator's event loop ends with nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib

from raftlog.node.blocking import ToItsEnd
from tests.helpers.loop_watcher import Nobody
from verification.simulator.event_loop import SimulatedLoop


def test_a_task_that_begins_work_on_its_way_out_leaves_no_coroutine_that_nobody_awaited() -> None:
    asyncio.run(asyncio.sleep(0))  # behind it this thread has no event loop
    loop = SimulatedLoop(Nobody(), lambda process: 0.0)

    async def begins_work_in_the_end() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await ToItsEnd(asyncio.to_thread)(lambda: None)

    with contextlib.suppress(TimeoutError):
        loop.run(begins_work_in_the_end(), 1.0)
    loop.close()  # a warning fails the test
