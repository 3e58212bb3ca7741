"""At most once: without a crash no record is lost, whoever leaves, joins, seeks, or loses a connection."""

# requirement: D1

from __future__ import annotations

import asyncio

import pytest

from raftlog.aio import Client, Consumer
from raftlog.client.messages import Message
from raftlog.types import TopicPartition
from tests.helpers.virtual_client import VirtualClient, filled
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, Trouble
from tests.helpers.worker_world import World

COMMITS = "PUT /v1/groups/g/offsets"


def consumer(client: Client, **options: object) -> Consumer:
    """A member of ``g``."""
    return client.consumer("g", TOPIC, delivery="at_most_once", **options)  # type: ignore[arg-type]


async def polled(taken: Consumer, count: int) -> list[int]:
    """The offsets of the next records."""
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            message = await taken.poll("5s")
            found += [] if message is None else [message.offset]
    return found


async def committed(client: Client) -> dict[int, int]:
    """The committed offsets of ``g`` by partition."""
    return {each.partition: each.committed_offset for each in await client.groups.offsets("g")}


# requirement: C6
async def test_what_was_not_handed_out_is_left_to_the_next_consumer() -> None:
    async with filled(10) as (_, client):
        async with consumer(client) as first:
            assert await polled(first, 3) == [0, 1, 2]
            assert await committed(client) == {0: 3}
        assert await committed(client) == {0: 3}
        async with consumer(client) as second:
            batch = await anext(second.batches(limit=4))
            assert [each.offset for each in batch] == [3, 4, 5, 6]
            assert await committed(client) == {0: 7}
        async with consumer(client) as third:
            assert await polled(third, 3) == [7, 8, 9]


async def test_a_rebalance_loses_and_repeats_nothing() -> None:
    async with filled(40, 40, 40, 40) as (_, client), consumer(client) as first:
        handled: list[TopicPartition | int | tuple[int, int]] = []

        async def handle(taken: Consumer) -> None:
            while len(handled) < 160:
                message = await taken.poll("100ms")
                if message is not None:
                    await asyncio.sleep(0.01)
                    handled.append((message.partition, message.offset))

        members = [asyncio.create_task(handle(first))]
        for _ in range(2):
            await asyncio.sleep(0.3)
            members.append(asyncio.create_task(handle(consumer(client))))
        async with asyncio.timeout(60):
            await asyncio.gather(*members)
        assert sorted(handled) == [(partition, offset) for partition in range(4) for offset in range(40)]


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.UNANSWERED])
async def test_a_record_waits_for_its_commit(trouble: Trouble) -> None:
    async with filled(5) as (broker, client), consumer(client, commit_interval="1h") as taken:
        broker.trouble(COMMITS, *[trouble] * 40)
        assert await taken.poll("1s") is None
        broker.troubles.clear()
        assert await polled(taken, 5) == [0, 1, 2, 3, 4]


async def test_a_record_whose_commit_failed_is_not_committed_by_the_end_of_its_consumer() -> None:
    async with filled(5) as (broker, client):
        async with consumer(client, commit_interval="1h") as taken:
            assert await polled(taken, 1) == [0]
            broker.trouble(COMMITS, *[Trouble.LOST] * 40)
            assert await taken.poll("1s") is None
            broker.troubles.clear()
        async with consumer(client) as taken:
            assert await polled(taken, 4) == [1, 2, 3, 4]


async def test_the_record_of_a_cancelled_poll_comes_with_the_next_one() -> None:
    async with filled(3) as (broker, client), consumer(client, commit_interval="1h") as taken:
        broker.trouble(COMMITS, Trouble.HELD)
        polling = asyncio.create_task(taken.poll("20s"))
        await eventually(lambda: broker.counted(COMMITS) == 1)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        broker.release.set()
        assert await polled(taken, 3) == [0, 1, 2]


async def test_a_seek_moves_the_committed_offset() -> None:
    async with filled(5) as (_, client), consumer(client) as taken:
        assert await polled(taken, 4) == [0, 1, 2, 3]
        await taken.seek(TOPIC, 0, 1)
        assert await polled(taken, 1) == [1]
        assert await committed(client) == {0: 2}
        await asyncio.sleep(5)  # the regular commit is due
        assert await committed(client) == {0: 2}


async def test_a_worker_commits_what_it_has_in_hand() -> None:
    async with filled(10) as (broker, client), VirtualClient(broker.url) as other:
        may_end, begun = asyncio.Event(), list[int]()

        async def handle(message: Message) -> None:
            begun.append(message.offset)
            await may_end.wait()

        other.worker(TOPIC, group="g", delivery="at_most_once", concurrency=3)(handle)
        running = asyncio.create_task(other.run())
        await eventually(lambda: len(begun) == 3)
        other.stop()
        may_end.set()
        await running
        assert sorted(begun) == [0, 1, 2]
        assert await committed(client) == {0: 3}


async def test_a_worker_handles_what_is_committed_though_it_ends_or_is_rebalanced() -> None:
    world = World(delivery="at_most_once", order="partition")
    world.records.hand_out(0, 1, 2, 3)
    await world.begun(0)
    assert world.records.claimed == [1]  # two in hand, in one lane
    world.records.begin_rebalance()
    world.handling.end(0)
    await world.begun(0, 1)
    world.records.may_claim.clear()
    world.records.hand_out(2, 3)
    await eventually(lambda: world.records.is_handling)
    world.core.stop()
    world.records.may_claim.set()
    world.handling.end(1)
    await world.begun(0, 1, 2)
    assert world.records.claimed == [1, 2]
    assert not world.running.done()
    world.handling.end(2)
    assert await world.running is None
    assert world.records.is_closed
