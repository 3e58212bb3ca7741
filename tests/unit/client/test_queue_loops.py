"""Jobs that a loop has received and not handed out go back when it ends, however it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress

import pytest

import raftlog
from raftlog.aio import Job
from tests.helpers.async_tests import beside
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, whole_broker

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
        await end(client, client.queue(TOPIC).jobs(limit=10, lease="60s", max_deliveries=1))
        loop = asyncio.get_running_loop()
        began, found = loop.time(), list[int]()
        while len(found) < 9 and loop.time() < began + 5:
            found += [job.deliveries for job in await other.queue(TOPIC).receive(limit=10, wait="1s")]
        assert found == [1] * 9, "what was not handed out counts as no delivery"
        await client.close()


BlockingJobs = Iterator[raftlog.Job]
KEPT_BLOCKING: list[BlockingJobs] = []


def breaks_blocking(client: raftlog.Client, jobs: BlockingJobs) -> None:
    for job in jobs:
        job.ack()
        break


def fails_blocking(client: raftlog.Client, jobs: BlockingJobs) -> None:
    with suppress(ZeroDivisionError):
        for job in jobs:
            job.ack()
            raise ZeroDivisionError


def closes_its_client_blocking(client: raftlog.Client, jobs: BlockingJobs) -> None:
    KEPT_BLOCKING.append(jobs)
    next(jobs).ack()
    client.close()


def is_interrupted_blocking(client: raftlog.Client, jobs: BlockingJobs) -> None:
    KEPT_BLOCKING.append(jobs)
    with suppress(KeyboardInterrupt), client:
        next(jobs).ack()
        raise KeyboardInterrupt


# requirement: P6
@pytest.mark.parametrize(
    "end", [breaks_blocking, fails_blocking, closes_its_client_blocking, is_interrupted_blocking]
)
def test_jobs_that_a_blocking_loop_did_not_hand_out_go_back(
    end: Callable[[raftlog.Client, BlockingJobs], None],
) -> None:
    with beside(whole_broker(partitions=1)) as whole, raftlog.Client(whole.url) as other:
        for number in range(10):
            other.send(TOPIC, str(number))
        client = raftlog.Client(whole.url)
        end(client, client.queue(TOPIC).jobs(limit=10, lease="60s", max_deliveries=1))
        began, found = time.monotonic(), list[int]()
        while len(found) < 9 and time.monotonic() < began + 20:
            found += [job.deliveries for job in other.queue(TOPIC).receive(limit=10, wait="1s")]
        assert found == [1] * 9, "what was not handed out counts as no delivery"
        client.close()


# requirement: P6 D3
async def test_a_lost_lease_is_in_doubt_where_the_client_has_repeated_the_request() -> None:
    """The first attempt may have settled these jobs: what the second one says of them proves nothing."""
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        for number in range(2):
            await client.send(TOPIC, str(number))
        queue = client.queue(TOPIC)
        jobs = queue.jobs(limit=2)
        done, open_ = await anext(jobs), await anext(jobs)
        await done.ack()
        both = done.receipt, open_.receipt
        with pytest.raises(raftlog.LeaseLost) as lost:
            await queue.extend(*both)
        assert lost.value.is_definite
        whole.trouble("extend", Trouble.UNANSWERED)
        with pytest.raises(raftlog.RaftlogError, match="1 of 2 jobs") as doubt:
            await queue.extend(*both)
        assert not doubt.value.is_definite
        await jobs.aclose()
