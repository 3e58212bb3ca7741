"""What a consumer hands out: waits, cancelled calls, seeks and pauses, with a whole broker."""

from __future__ import annotations

import asyncio

from raftlog.aio import Client, Consumer
from tests.helpers.async_tests import in_real_time
from tests.helpers.whole_broker import TOPIC, whole_broker


async def until_shared(*members: Consumer) -> None:
    """Return once all members know their partitions in one generation."""
    async with asyncio.timeout(20):
        while len({each.generation for each in members}) > 1 or not all(each.is_assigned for each in members):
            await asyncio.sleep(0.01)


# requirement: G5
@in_real_time
async def test_a_member_without_partitions_waits_in_poll() -> None:
    async with (
        whole_broker(partitions=1) as broker,
        Client(broker.url) as client,
        await client.consumer("g", TOPIC) as first,
        await client.consumer("g", TOPIC) as second,
    ):
        await until_shared(first, second)
        (idle,) = (each for each in (first, second) if not each.assignment)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await idle.poll("200ms") is None
        assert loop.time() - began_s > 0.15


# requirement: G5
@in_real_time
async def test_a_worker_without_partitions_ends_when_it_is_stopped() -> None:
    """Its loop is free for its heartbeats, and for the partitions that it gets later."""
    async with (
        whole_broker(partitions=1) as broker,
        Client(broker.url) as client,
        Client(broker.url) as other,
    ):
        handled = asyncio.Event()

        @other.worker(TOPIC, group="g")
        async def handle(message: object) -> None:
            handled.set()

        async with await client.consumer("g", TOPIC, member_id="a") as first:  # sorted before the worker
            async with asyncio.timeout(20):
                while not first.assignment:
                    await asyncio.sleep(0.01)
            running = asyncio.create_task(other.run())
            async with asyncio.timeout(20):
                while first.generation < 2 or not first.is_assigned:
                    await asyncio.sleep(0.01)
        await client.send(TOPIC, "1")
        async with asyncio.timeout(20):
            await handled.wait()
        other.stop()
        async with asyncio.timeout(20):
            await running
