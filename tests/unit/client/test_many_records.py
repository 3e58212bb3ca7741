"""Many records at once, with a whole broker: in the partitions and the order of single ones, each once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise

import pytest

from raftlog import Client as BlockingClient
from raftlog.aio import Client
from raftlog.errors import NotSent, PartitionDecommissioned, RecordTooLarge, UnknownPartition
from raftlog.records.builder import Record
from raftlog.records.keys import partition_for_key
from tests.helpers.async_tests import in_real_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, WholeBroker, whole_broker

PARTITIONS = 3


def numbered(count: int, *, keys: int = 0) -> list[Record]:
    """Values from 0 on, with keys or without."""
    return [
        Record(b"%d" % number, b"k%d" % (number % keys) if keys else None, timestamp_ms=1_000)
        for number in range(count)
    ]


async def stored(client: Client, partitions: int = PARTITIONS) -> dict[int, list[tuple[bytes | None, bytes]]]:
    """Key and value of each record, by partition, in order."""
    found: dict[int, list[tuple[bytes | None, bytes]]] = {}
    for number in range(partitions):
        chunk = await client.partition(TOPIC, number).read("earliest", max_bytes=8 << 20)
        found[number] = [(message.key, message.value) for message in chunk.messages]
    return found


# requirement: K1 F5
async def test_each_record_is_stored_once_by_its_key_and_in_order() -> None:
    records = numbered(2_000, keys=50)
    async with whole_broker(PARTITIONS) as whole, VirtualClient(whole.url) as client:
        # The buffer has room for a few of them only.
        async with client.producer(TOPIC, batch_bytes=2_000, buffer_bytes=9_000) as producer:
            await producer.send_all(records[:1_500])
            await producer.send_all(records[1_500:])
        found = await stored(client)
    by_partition: dict[int, list[tuple[bytes | None, bytes]]] = defaultdict(list)
    for record in records:
        assert record.key is not None
        assert record.value is not None
        by_partition[partition_for_key(record.key, PARTITIONS)].append((record.key, record.value))
    assert found == {number: by_partition[number] for number in range(PARTITIONS)}


# requirement: F5
@pytest.mark.parametrize("partitioner", ["sticky", "round_robin"])
async def test_records_without_a_key_share_batches_or_take_turns(partitioner: str) -> None:
    async with whole_broker(PARTITIONS) as whole, VirtualClient(whole.url) as client:
        async with client.producer(TOPIC, batch_bytes=2_000, partitioner=partitioner) as producer:
            await producer.send_all(numbered(900))
        found = await stored(client)
        sizes = [len(records) for records in found.values()]
        assert sum(sizes) == 900
        assert sorted(int(value) for records in found.values() for _, value in records) == [*range(900)]
        for records in found.values():
            numbers = [int(value) for _, value in records]
            assert numbers == sorted(numbers)
        if partitioner == "round_robin":
            assert sizes == [300, 300, 300]
        else:
            neighbours = sum(
                int(after) - int(before) == 1
                for records in found.values()
                for (_, before), (_, after) in pairwise(records)
            )
            assert neighbours > 800, "a batch has neighbours"


# requirement: F5
async def test_a_partition_may_be_named_and_must_exist() -> None:
    async with whole_broker(PARTITIONS) as whole, VirtualClient(whole.url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_all(numbered(10, keys=3), partition=2)
            with pytest.raises(UnknownPartition):
                await producer.send_all(numbered(1), partition=9)
        assert [len(records) for records in (await stored(client)).values()] == [0, 0, 10]
        async with client.producer(TOPIC, buffer_bytes=2_000) as producer:
            with pytest.raises(RecordTooLarge):
                await producer.send_all([Record(bytes(3_000), b"k")])
        with pytest.raises(NotSent):
            await producer.send_all(numbered(1))


async def kept_partitions(whole: WholeBroker) -> None:
    """A record in each, so that none is removed at once."""
    async with VirtualClient(whole.url) as client:
        for partition in range(PARTITIONS):
            await client.send(TOPIC, "kept", partition=partition)


# requirement: F5 K6
async def test_records_move_on_when_partitions_are_decommissioned() -> None:
    records = numbered(900, keys=30)
    async with whole_broker(PARTITIONS) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        async with client.producer(TOPIC, linger="1ms", batch_bytes=400) as producer:
            for first in range(0, 900, 90):
                await producer.send_all(records[first : first + 90])
                if first == 360:
                    await client.topics.decommission_partitions(TOPIC, [1, 2])
        found = await stored(client)
        values = [value for some in found.values() for _, value in some if value != b"kept"]
        assert sorted(map(int, values)) == [*range(900)]
        for key in {record.key for record in records}:
            moved = [int(value) for one, value in found[0] if one == key]
            assert moved == sorted(moved), "one key is in order"
        with pytest.raises(PartitionDecommissioned):
            async with client.producer(TOPIC) as producer:
                await producer.send_all(numbered(1), partition=2)


# requirement: D3
@in_real_time
async def test_a_blocking_transaction_takes_them_too() -> None:
    async with whole_broker(PARTITIONS) as whole:

        def use() -> list[int]:
            with (
                BlockingClient(whole.url) as client,
                client.producer(TOPIC, transactional_id="t", buffer_bytes=9_000) as producer,
            ):
                with producer.transaction() as transaction:
                    transaction.send_all(numbered(1_000, keys=7))
                with suppress(ValueError), producer.transaction() as transaction:
                    transaction.send_all(numbered(10, keys=7), topic=TOPIC)
                    raise ValueError
                with pytest.raises(RuntimeError, match="aborted"):
                    transaction.send_all(numbered(1))
                with pytest.raises(RuntimeError, match="transactional id"):
                    producer.send_all(numbered(1))
                chunks = [client.partition(TOPIC, number).read(0) for number in range(PARTITIONS)]
                return sorted(int(message.value) for chunk in chunks for message in chunk.messages)

        assert await asyncio.to_thread(use) == [*range(1_000)]
