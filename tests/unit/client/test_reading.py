"""Reading a partition."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from raftlog.aio import Client, Partition
from raftlog.errors import CorruptBatch, OffsetOutOfRange, UnknownPartition, UnknownTopic
from tests.helpers.fake_broker import fake_cluster


async def fill(client: Client, count: int, *, first_ms: int = 1_000) -> Partition:
    """Partition 0 of ``orders`` with numbered records in batches of ten, a second apart."""
    async with client.producer("orders", linger="10s") as producer:
        for number in range(count):
            await producer.send(str(number), key=number, partition=0, timestamp=first_ms + 1_000 * number)
            if number % 10 == 9:
                await producer.flush()
    return client.partition("orders", 0)


def test_a_read_gives_what_follows_a_position_up_to_a_limit_and_says_where_to_go_on() -> None:
    # requirement: C1
    # requirement: C2
    async def story() -> None:
        async with fake_cluster() as cluster, Client(cluster.urls) as client:
            partition = await fill(client, 35)
            chunk = await partition.read(7)
            assert [message.offset for message in chunk] == list(range(7, 35))
            assert (chunk.next_offset, chunk.high_watermark, chunk.is_up_to_date) == (35, 35, True)
            some = await partition.read(7, limit=5)
            assert [message.offset for message in some] == [7, 8, 9, 10, 11]
            assert (some.next_offset, len(some), some.is_up_to_date) == (12, 5, False)
            small = await partition.read(max_bytes=1)  # whole batches, one at least
            assert (small.messages[0].offset, small.next_offset) == (0, 10)
            with pytest.raises(ValueError, match="limit"):
                await partition.read(limit=0)

    asyncio.run(story())


def test_a_message_has_all_that_is_stored_of_it() -> None:
    async def story() -> None:
        async with fake_cluster() as cluster, Client(cluster.urls) as client:
            await client.send("orders", {"id": 1}, key="u1", headers={"s": b"w"}, tags=["new"], timestamp=5)
            (message,) = await client.partition("orders", 0).read()
            assert (message.topic, message.partition, message.offset) == ("orders", 0, 0)
            assert (message.key, message.value, message.timestamp_ms) == (b"u1", b'{"id":1}', 5)
            assert message.tags == ("new",)
            assert message.size_bytes == 2 + 8 + 1 + 1 + len("raftlog.tag") + 3
            assert message.crc == cluster.partition().batches[0].header.crc

    asyncio.run(story())


def test_positions_are_offsets_names_times_and_counts_from_the_end() -> None:
    async def story() -> None:
        async with fake_cluster() as cluster, Client(cluster.urls) as client:
            partition = await fill(client, 30)
            assert await partition.offsets() == await partition.offsets("latest") == 30
            assert await partition.offsets("earliest") == 0
            assert await partition.offsets(datetime.fromtimestamp(12, tz=UTC)) == 11
            assert [message.offset for message in await partition.read(-3)] == [27, 28, 29]
            assert len(await partition.read("latest")) == 0
            with pytest.raises(ValueError, match="'earliest'"):
                await partition.read("first")

    asyncio.run(story())


def test_a_read_that_waits_ends_with_the_first_message_or_with_its_time() -> None:
    # requirement: C3
    async def story() -> None:
        async with fake_cluster() as cluster, Client(cluster.urls) as client:
            partition = client.partition("orders", 0)
            began = time.monotonic()
            assert len(await partition.read(0, wait="50ms")) == 0
            assert time.monotonic() - began >= 0.05
            waiting = asyncio.create_task(partition.read(0, wait="20s"))
            await asyncio.sleep(0.02)
            await client.send("orders", "now", partition=0)
            assert [message.value for message in await waiting] == [b"now"]

    asyncio.run(story())


def test_damaged_batches_are_never_delivered() -> None:
    # requirement: M3
    async def story() -> None:
        async with fake_cluster() as cluster, Client(cluster.urls) as client:
            partition = await fill(client, 5)
            cluster.corrupt_reads = True
            with pytest.raises(CorruptBatch):
                await partition.read()

    asyncio.run(story())


def test_a_tail_goes_on_over_changes_of_leaders_and_restarts_of_brokers() -> None:
    async def story() -> None:
        async with fake_cluster(brokers=2) as cluster, Client(cluster.urls) as client:
            partition = await fill(client, 5)
            seen = []
            async with aclosing(partition.tail("earliest")) as messages:
                async for message in messages:
                    seen.append(message.offset)
                    if message.offset == 4:
                        await cluster.brokers[1].stop()
                        cluster.leader = 2
                        await client.send("orders", "5", partition=0)
                    if message.offset == 5:
                        cluster.leader = 1
                        await cluster.brokers[1].start()
                        await client.send("orders", "6", partition=0)
                    if message.offset == 6:
                        break
            assert seen == list(range(7))

    asyncio.run(story())


def test_errors_of_reading_say_what_is_wrong() -> None:
    async def story() -> None:
        async with fake_cluster() as cluster, Client(cluster.urls) as client:
            with pytest.raises(OffsetOutOfRange) as caught:
                await client.partition("orders", 0).read(10)
            assert (caught.value.details["start"], caught.value.details["end"]) == (0, 0)
            with pytest.raises(UnknownPartition, match="0 to 0"):
                await client.partition("orders", 4).read(0)
            with pytest.raises(UnknownTopic):
                await client.partition("nowhere", 0).read(0)

    asyncio.run(story())
