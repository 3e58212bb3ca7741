"""Retry and dead-letter topics take whatever their source takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raftlog import Backoff
from raftlog.client.messages import Message
from raftlog.errors import RecordTooLarge
from raftlog.records.failures import LIMIT
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, whole_broker
from tests.helpers.worker_world import World

RETRY = Backoff("100ms", attempts=2)


@asynccontextmanager
async def working(client: VirtualClient, sizes: list[int]) -> AsyncIterator[None]:
    """A worker of a client that fails at large messages, for the time of the block."""

    @client.worker(TOPIC, group="g", retry=RETRY, dead_letter=True)
    async def handle(message: Message) -> None:
        sizes.append(len(message.value))
        if len(message.value) > 1_000:
            raise ValueError("too much")

    running = asyncio.create_task(client.run())
    try:
        yield
        assert not running.done()
    finally:
        client.stop()
        await running


async def dead_letters(client: VirtualClient, group: str) -> list[bytes]:
    """The values of the dead letters of a group."""
    found = await client.partition(f"{TOPIC}.{group}.dlq", 0).read(0, max_bytes=16 << 20)
    return sorted((message.value for message in found), key=len)


# requirement: A7
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_limit_that_is_raised_later_is_followed(restarts: bool) -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as admin:
        sizes: list[int] = []
        large = b"x" * (3 << 20)
        async with VirtualClient(whole.url) as client, working(client, sizes):
            await admin.send(TOPIC, "first")
            await eventually(lambda: sizes == [5])
            await admin.topics.alter(TOPIC, config={LIMIT: 4 << 20})
            if not restarts:
                await admin.send(TOPIC, large)
                await eventually(lambda: sizes[1:] == [len(large)] * 2)
        if restarts:
            async with VirtualClient(whole.url) as client, working(client, sizes):
                await admin.send(TOPIC, large)
                await eventually(lambda: sizes[1:] == [len(large)] * 2)
        assert await dead_letters(admin, "g") == [large]
        for name in f"{TOPIC}.g.retry", f"{TOPIC}.g.dlq":
            assert (await admin.topics.describe(name)).config[LIMIT] == (4 << 20) + (64 << 10)


# requirement: A7
async def test_the_dead_letters_of_a_queue_follow_their_source() -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        queue = client.queue(TOPIC)
        await client.send(TOPIC, "small")
        (job,) = await queue.poll(wait="5s")
        await job.dead_letter()
        await client.topics.alter(TOPIC, config={LIMIT: 4 << 20})
        large = b"x" * (3 << 20)
        await client.send(TOPIC, large)
        (job,) = await queue.poll(wait="5s")
        await job.dead_letter()
        async with asyncio.timeout(20):
            while len(found := await dead_letters(client, TOPIC)) < 2:
                await asyncio.sleep(0.1)
        assert found == [b"small", large]


# requirement: A7
async def test_a_record_that_no_topic_takes_with_more_headers_is_a_letter_without_its_value() -> None:
    world = World(dead_letter=True)
    world.refusals = [RecordTooLarge("16 MiB at most")]
    world.records.hand_out(0, value=b"x" * 100)
    await world.begun(0)
    world.handling.end(0, ValueError("bad"))
    await eventually(lambda: world.records.acknowledged == [0])
    ((_, _, record),) = world.stored
    assert b"its 100 bytes are at t/0/0 only" in dict(record.headers)["raftlog.reason"]  # type: ignore[operator]
    await world.stop()
