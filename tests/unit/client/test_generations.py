"""Offsets of one generation of a group are not committed in another one, also by polls over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.aio import Client, Consumer
from raftlog.client.consumer.fetching import Fetching
from raftlog.errors import StaleGeneration, TopicNotFound
from raftlog.types import TopicPartition
from raftlog.wire import groups as wire
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, Trouble, WholeBroker, send_numbers, whole_broker

COMMITS, POSITIONS = "PUT /v1/groups/g/offsets", "GET /v1/groups/g/offsets"


async def rebalanced(broker: WholeBroker, client: Client, taken: Consumer) -> asyncio.Task[object]:
    """Another member joins, and ``taken`` is in the next generation without its positions."""
    before = broker.counted(POSITIONS)
    broker.trouble(COMMITS, *[Trouble.LOST] * 1_000)
    broker.trouble(POSITIONS, *[Trouble.LOST] * 1_000)
    body = wire.JoinGroup(topics=[TOPIC], session_timeout=10_000, rebalance_timeout=10_000, member_id="z")
    other = asyncio.create_task(client._session.ask_any("POST", "/v1/groups/g/members", body=body))
    async with asyncio.timeout(20):
        while taken.generation != 2 or broker.counted(POSITIONS) == before:
            await asyncio.sleep(0.01)
    broker.troubles = [one for one in broker.troubles if one[0] != COMMITS]
    return other


# requirement: ST2
async def test_a_late_commit_does_not_take_the_next_generation_for_its_own() -> None:
    async with whole_broker(partitions=2) as broker, VirtualClient(broker.url, retry_timeout="1s") as client:
        await send_numbers(client, 10)
        options = {"commit_interval": "1h", "session_timeout": "4s", "rebalance_timeout": "10s"}
        async with client.consumer("g", TOPIC, **options) as taken:  # type: ignore[arg-type]  # of tests
            for _ in range(4):
                assert await taken.poll("20s") is not None
            other = await rebalanced(broker, client, taken)
            with pytest.raises(StaleGeneration):
                await taken.commit()
            broker.troubles.clear()
            assert await client.groups.offsets("g") == []
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)


async def read_on_in_the_new_topic(broker: WholeBroker, taken: Consumer, values: list[str]) -> list[str]:
    """Delete the topic, create it again with records, and read them with a member of the group."""
    async with VirtualClient(broker.url) as other:
        await other.topics.delete(TOPIC)
        await other.topics.create(TOPIC, partitions=1, replication_factor=1)
        async with other.producer(TOPIC) as producer:
            for value in values:
                await producer.send(value, partition=0)
    found: list[str] = []
    async with asyncio.timeout(20):
        while not set(values) <= set(found):
            try:
                message = await taken.poll("500ms")
            except TopicNotFound:  # until the group has rebalanced
                await asyncio.sleep(0.05)
                continue
            found += [] if message is None else [message.value.decode()]
    return found


# requirement: G4
async def test_what_was_acknowledged_of_a_deleted_topic_is_not_committed_for_its_successor() -> None:
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        await send_numbers(client, 10)
        options = {"commit_interval": "1h", "session_timeout": "4s"}
        async with client.consumer("g", TOPIC, **options) as taken:  # type: ignore[arg-type]  # of tests
            for _ in range(4):
                assert await taken.poll("20s") is not None  # the last one is being handled
            values = [f"new {number}" for number in range(6)]
            await read_on_in_the_new_topic(broker, taken, values)


# requirement: G4
async def test_a_handler_that_outlasts_its_assignment_acknowledges_nothing_in_the_next_one() -> None:
    """The partition may be one of another topic by then, of which nobody has handled the first records."""
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        await send_numbers(client, 4)
        options = {"commit_interval": "1h", "session_timeout": "2s", "rebalance_timeout": "1s"}
        async with client.consumer("g", TOPIC, **options) as taken:  # type: ignore[arg-type]  # of tests
            for _ in range(4):
                assert await taken.poll("20s") is not None  # the last one is being handled
            await client.topics.delete(TOPIC)
            await client.topics.create(TOPIC, partitions=1, replication_factor=1)
            async with VirtualClient(broker.url) as other, other.producer(TOPIC) as producer:
                for number in range(6):
                    await producer.send(f"new {number}", partition=0)
            await eventually(lambda: taken.generation > 1 and taken.is_assigned and bool(taken.assignment))
            await taken.commit()
            assert await client.groups.offsets("g") == []
            message = await taken.poll("20s")
            assert message is not None
            assert message.value == b"new 0"
            await taken.commit()
            (row,) = await client.groups.offsets("g")
            assert row.committed_offset == 1


async def test_the_error_of_a_read_is_not_raised_in_the_next_assignment() -> None:
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        fetching = Fetching(lambda target: client.partition(target.topic, target.partition), 1 << 20)
        await fetching.start({TopicPartition(TOPIC, 0): 0})
        await client.topics.delete(TOPIC)
        await eventually(lambda: bool(fetching.failures))
        await fetching.start({})
        assert await fetching.take(1, 0) == []


MEMBERS, COMMITTED = "/v1/groups/g/members", "/v1/groups/g/offsets"


async def polled(client: Client, body: wire.PollGroup) -> wire.PolledGroup:
    """By member ``z``."""
    return (await client._session.ask_any("POST", f"{MEMBERS}/z:poll", body=body)).read(wire.PolledGroup)


async def joined(client: Client) -> int:
    """Member ``b`` joins and gets the partition; its generation."""
    ask = client._session.ask_any
    body = wire.JoinGroup(topics=[TOPIC], member_id="b")
    generation = (await ask("POST", MEMBERS, body=body)).read(wire.JoinedGroup).generation
    reply = await ask(
        "POST", f"{MEMBERS}/b:sync", body=wire.SyncGroup(generation=generation, assignments="auto")
    )
    assert reply.read(wire.SyncedGroup).assignment == [wire.TopicPartitions(TOPIC, [0])]
    return generation


# requirement: D2 G4
async def test_an_acknowledgement_of_an_earlier_generation_takes_nothing_back() -> None:
    async with whole_broker(partitions=1) as broker, Client(broker.url) as client:
        await send_numbers(client, 10)
        first = await polled(client, wire.PollGroup(topics=[TOPIC], wait="0s"))
        body = wire.PollGroup(generation=first.generation, ack=first.positions, wait="20s", limit=5)
        waiting = asyncio.create_task(polled(client, body))
        generation = await joined(client)  # once that poll has joined again
        await send_numbers(client, 40)
        offset = wire.OffsetCommit(TOPIC, 0, 45)
        commit = wire.CommitOffsets(offsets=[offset], member_id="b", generation=generation)
        await client._session.ask_any("PUT", COMMITTED, body=commit)
        await client._session.ask_any("DELETE", f"{MEMBERS}/b")
        later = await waiting
        assert (later.generation, [record.offset for record in later.records]) == (3, [45, 46, 47, 48, 49])
        await polled(client, wire.PollGroup(generation=3, ack=later.positions, wait="0s"))
        assert [row.committed_offset for row in await client.groups.offsets("g")] == [50]


# requirement: D2
async def test_a_repeated_poll_reads_what_its_lost_answer_had() -> None:
    async with whole_broker(partitions=1) as broker, Client(broker.url) as client:
        await send_numbers(client, 10)
        first = await polled(client, wire.PollGroup(topics=[TOPIC], wait="0s", limit=3))
        body = wire.PollGroup(generation=1, ack=first.positions, wait="0s", limit=3)
        second = await polled(client, body)
        await polled(client, wire.PollGroup(generation=1, ack=second.positions, wait="0s"))
        again = await polled(client, body)
        assert [record.offset for record in again.records] == [3, 4, 5]
