"""Parked reads: who is woken when, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import time

import pytest

from partitions.replica.fetch_waiters import FetchWaiters
from raftlog.types import Index
from tests.helpers.async_tests import in_virtual_time


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@in_virtual_time
async def test_a_waiter_is_woken_when_its_index_is_committed_and_not_before() -> None:
    # requirement: C3
    waiters = FetchWaiters()
    tasks = {index: asyncio.create_task(waiters.wait(Index(index))) for index in (5, 7, 7, 9)}
    await turns()
    waiters.advance(Index(4))
    await turns()
    assert not any(task.done() for task in tasks.values())
    waiters.advance(Index(8))
    await turns()
    assert [index for index, task in tasks.items() if task.done()] == [5, 7]
    waiters.wake_all()
    await asyncio.gather(*tasks.values())
    assert len(waiters) == 0


@in_virtual_time
async def test_a_cancelled_waiter_is_freed_at_once() -> None:
    waiters = FetchWaiters()
    stays = asyncio.create_task(waiters.wait(Index(5)))
    leaves = asyncio.create_task(waiters.wait(Index(5)))
    await turns()
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    assert len(waiters) == 1
    waiters.advance(Index(5))
    await stays
    assert len(waiters) == 0


@in_virtual_time
async def test_a_waiter_that_is_woken_and_cancelled_in_one_turn_is_counted_once() -> None:
    waiters = FetchWaiters()
    task = asyncio.create_task(waiters.wait(Index(5)))
    await turns()
    waiters.advance(Index(5))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = asyncio.create_task(waiters.wait(Index(6)))
    await turns()
    task.cancel()
    waiters.advance(Index(6))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waiters) == 0


@in_virtual_time
async def test_ten_thousand_waiters_are_freed_by_cancelling_and_by_waking() -> None:
    waiters = FetchWaiters()
    tasks = [asyncio.create_task(waiters.wait(Index(number % 3))) for number in range(10_000)]
    await turns()
    assert len(waiters) == 10_000
    for task in tasks[:5_000]:
        task.cancel()
    began = time.process_time()
    waiters.advance(Index(2))
    await asyncio.gather(*tasks, return_exceptions=True)
    assert time.process_time() - began < 1
    assert len(waiters) == 0
