"""Waits of coroutines end with the condition or with the limit, and say what they waited for."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.testing.waits import LIMIT_S
from tests.helpers.waiting import limited, until


async def test_a_wait_ends_with_its_condition() -> None:
    loop = asyncio.get_running_loop()
    assert await until(lambda: "found" if loop.time() > 1 else "", what="a second") == "found"
    assert loop.time() < 1.1
    async with limited("a second"):
        await asyncio.sleep(1)


async def waits_for_ever() -> None:
    await asyncio.sleep(1_000_000)


async def test_an_expired_wait_says_what_it_waited_for_and_what_every_task_does() -> None:
    other = asyncio.create_task(waits_for_ever())
    with pytest.raises(AssertionError, match="the moon: not within 60 s; last seen: 0") as seen:
        await until(lambda: 0, what="the moon")
    with pytest.raises(AssertionError, match="the sun: not within 60 s") as blocked:
        async with limited("the sun"):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == pytest.approx(2 * LIMIT_S, abs=0.1)
    for caught in (seen, blocked):
        assert "waits_for_ever" in str(caught.value)
    other.cancel()


async def test_a_timeout_of_the_block_is_not_that_of_the_wait() -> None:
    with pytest.raises(TimeoutError):
        async with limited("the block"), asyncio.timeout(1):
            await asyncio.Event().wait()
