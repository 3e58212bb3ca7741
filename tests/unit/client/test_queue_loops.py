"""Jobs that a loop has received and not handed out go back when it ends, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

import pytest

from raftlog.aio import Job
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, whole_broker

Jobs = AsyncGenerator[Job, None]
End = Callable[[VirtualClient, Jobs], Awaitable[None]]
KEPT: list[Jobs] = []


async def closes(client: VirtualClient, jobs: Jobs) -> None:
    async with aclosing(jobs):
        await (await anext(jobs)).ack()


async def breaks(client: VirtualClient, jobs: Jobs) -> None:
    async for job in jobs:
        await job.ack()
        break


async def fails(client: VirtualClient, jobs: Jobs) -> None:
    with suppress(ZeroDivisionError):
        async for job in jobs:
            await job.ack()
            raise ZeroDivisionError


async def closes_its_client(client: VirtualClient, jobs: Jobs) -> None:
    KEPT.append(jobs)
    await (await anext(jobs)).ack()
    await client.close()
    await jobs.aclose()  # the client is closed, and the jobs are back


async def is_cancelled(client: VirtualClient, jobs: Jobs) -> None:
    async def work() -> None:
        async for job in jobs:
            await job.ack()
            began.set()
            await asyncio.sleep(60)

    began = asyncio.Event()
    working = asyncio.create_task(work())
    await began.wait()
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working


# requirement: P6
@pytest.mark.parametrize("end", [closes, breaks, fails, closes_its_client, is_cancelled])
async def test_jobs_that_were_not_handed_out_go_back(end: End) -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as other:
        for number in range(10):
            await other.send(TOPIC, str(number))
        client = VirtualClient(whole.url)
        await client.open()
        await end(client, client.queue(TOPIC).receive(max=10, visibility="60s", max_deliveries=1))
        loop = asyncio.get_running_loop()
        began, found = loop.time(), list[int]()
        while len(found) < 9 and loop.time() < began + 5:
            found += [job.deliveries for job in await other.queue(TOPIC).poll(max=10, wait="1s")]
        assert found == [1] * 9, "what was not handed out counts as no delivery"
        await client.close()
