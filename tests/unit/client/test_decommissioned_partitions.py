"""A producer goes on when partitions are decommissioned: no record is lost, none is stored twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import pytest

from raftlog.aio import Client
from raftlog.client.buffer import Buffer, PartitionQueue
from raftlog.client.narrowing import Narrowing
from raftlog.client.options import producer_options
from raftlog.client.partitioners import Router
from raftlog.client.sender import PartitionSender
from raftlog.clock import SystemClock
from raftlog.errors import InvalidRecord, NotSent, PartitionDecommissioned, PartitionNotFound, RaftlogError
from raftlog.records.builder import Record
from raftlog.records.keys import partition_for_key
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, Trouble, WholeBroker, whole_broker

# requirement: F5


async def stored(client: Client, partitions: int) -> dict[int, list[tuple[bytes | None, str]]]:
    """Key and value of each record, by partition."""
    found: dict[int, list[tuple[bytes | None, str]]] = {}
    for partition in range(partitions):
        chunk = await client.partition(TOPIC, partition).read("earliest", max_bytes=8 << 20)
        found[partition] = [(message.key, message.value.decode()) for message in chunk.messages]
    return found


async def kept_partitions(whole: WholeBroker) -> None:
    """A record in each, so that none is removed at once."""
    async with VirtualClient(whole.url) as client:
        for partition in range(len(whole.broker.controller.image.topics[TOPIC].partitions)):
            await client.send(TOPIC, "kept", partition=partition)


# requirement: K6 K1
async def test_records_move_on_in_order_without_an_error() -> None:
    async with whole_broker(partitions=3) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        sent: dict[str, list[str]] = defaultdict(list)
        pending = []
        async with client.producer(TOPIC, linger="1ms", batch_bytes=400) as producer:
            for number in range(900):
                key = f"k{number % 30}"
                pending.append(await producer.send(f"{number}", key=key))
                sent[key].append(f"{number}")
                if number == 300:
                    await client.topics.decommission_partitions(TOPIC, [1, 2])
                if number % 50 == 0:
                    await asyncio.sleep(0.005)
            receipts = [await one for one in pending]
        found = await stored(client, 3)
        values = [value for records in found.values() for _, value in records if value != "kept"]
        assert Counter(values) == Counter(f"{number}" for number in range(900))
        for number, receipt in enumerate(receipts):
            assert found[receipt.partition], number
        for key, expected in sent.items():
            in_order = [value for records in found.values() for k, value in records if k == key.encode()]
            moved = [value for k, value in found[0] if k == key.encode()]
            assert moved == [value for value in expected if value in set(moved)], "one key is in order"
            assert in_order.count(expected[-1]) == 1
        assert all(receipt.partition == 0 for receipt in receipts[-100:])


# requirement: K1
async def test_batches_that_move_together_stay_in_order() -> None:
    """Every batch waits in the partition that leaves, so that the order does not depend on the moment."""
    async with (
        whole_broker(partitions=2) as whole,
        VirtualClient(whole.url) as client,
        VirtualClient(whole.url) as admin,
    ):
        await kept_partitions(whole)
        key = next(f"k{n}" for n in range(99) if partition_for_key(f"k{n}".encode(), 2) == 1)
        async with client.producer(TOPIC, linger="1ms", batch_bytes=400) as producer:
            await (await producer.send("warm", key=key))
            await admin.topics.decommission_partitions(TOPIC, [1])
            pending = [await producer.send(f"{number}", key=key) for number in range(200)]
            assert {(await one).partition for one in pending} == {0}
        found = await stored(client, 2)
        assert [value for k, value in found[0] if k == key.encode()] == [f"{number}" for number in range(200)]


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.UNANSWERED])
async def test_an_attempt_without_an_answer_is_stored_once(trouble: Trouble) -> None:
    async with whole_broker(partitions=2) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        key = next(f"k{n}" for n in range(99) if partition_for_key(f"k{n}".encode(), 2) == 1)
        async with client.producer(TOPIC, linger=0) as producer:
            await (await producer.send("first", key=key))
            whole.trouble("POST /v1/topics/orders/partitions/1/records", trouble)
            pending = await producer.send("second", key=key)
            await asyncio.sleep(0.05)
            await client.topics.decommission_partitions(TOPIC, [1])
            await pending
        found = await stored(client, 2)
        assert [value for records in found.values() for _, value in records].count("second") == 1


async def test_a_record_for_a_named_partition_fails_with_the_remedy() -> None:
    async with whole_broker(partitions=2) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        producer = client.producer(TOPIC, linger="20ms")
        async with producer:
            await (await producer.send("warm", partition=1))
            await client.topics.decommission_partitions(TOPIC, [1])
            pending = await producer.send("named", partition=1)
            free = [await producer.send(f"{number}", key=f"k{number}") for number in range(20)]
            with pytest.raises(PartitionDecommissioned, match="send to one of 0 to 0, or name no partition"):
                await pending
            assert {(await one).partition for one in free} == {0}
            with pytest.raises(PartitionDecommissioned):
                await producer.send("named", partition=1)
            with pytest.raises(ExceptionGroup) as failures:
                producer.raise_errors(None)
            assert len(failures.value.exceptions) == 1
            producer._errors.clear()
            producer._failed_count = 0


async def test_a_partition_is_used_again_once_it_is_recommissioned() -> None:
    async with whole_broker(partitions=2) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        async with client.producer(TOPIC, linger=0) as producer:
            for number in range(10):
                await (await producer.send(f"a{number}", key=f"k{number}"))
            await client.topics.decommission_partitions(TOPIC, [1])
            for number in range(10):
                assert (await (await producer.send(f"b{number}", key=f"k{number}"))).partition == 0
            await client.topics.recommission_partitions(TOPIC)
            partitions = set()
            for number in range(40):
                partitions.add((await (await producer.send(f"c{number}", key=f"k{number}"))).partition)
            assert partitions == {0, 1}
        found = await stored(client, 2)
        values = Counter(value for records in found.values() for _, value in records)
        assert sum(values.values()) == 62
        assert {value: count for value, count in values.items() if count > 1} == {"kept": 2}


async def test_records_for_an_empty_partition_that_is_removed_at_once_move_too() -> None:
    async with whole_broker(partitions=2) as whole, VirtualClient(whole.url) as client:
        async with client.producer(TOPIC, linger=0) as producer:
            key = next(f"k{n}" for n in range(99) if partition_for_key(f"k{n}".encode(), 2) == 0)
            await (await producer.send("warm", key=key))
            await client.topics.decommission_partitions(TOPIC, [1])
            await eventually(lambda: len(whole.broker.controller.image.topics[TOPIC].partitions) <= 1)
            other = next(f"k{n}" for n in range(99) if partition_for_key(f"k{n}".encode(), 2) == 1)
            assert (await (await producer.send("moved", key=other))).partition == 0
        with pytest.raises(PartitionNotFound):
            await client.send(TOPIC, "x", partition=1)


# requirement: D3
async def test_a_transaction_goes_on_in_other_partitions() -> None:
    async with whole_broker(partitions=2) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        async with (
            client.producer(TOPIC, transactional_id="t", linger=0) as producer,
            producer.transaction() as tx,
        ):
            for number in range(10):
                await tx.send(f"a{number}", key=f"k{number}")
            await tx.records.flush()
            await client.topics.decommission_partitions(TOPIC, [1])
            for number in range(10):
                await tx.send(f"b{number}", key=f"k{number}")
        found = await stored(client, 2)
        values = sorted(value for records in found.values() for _, value in records if value != "kept")
        assert values == sorted(f"{letter}{number}" for letter in "ab" for number in range(10))


async def test_records_that_were_about_to_move_fail_when_the_producer_is_closed() -> None:
    async with whole_broker(partitions=2) as whole, VirtualClient(whole.url) as client:
        await kept_partitions(whole)
        producer = client.producer(TOPIC, linger="10s")
        keys = [f"k{n}" for n in range(20)]
        pending = [await producer.send("x", key=key) for key in keys]
        await client.topics.decommission_partitions(TOPIC, [1])
        await producer.close(0)
        for one in pending:
            error = one.exception()
            assert isinstance(error, NotSent | RaftlogError)


# requirement: K3
def test_a_partitioner_that_raises_fails_its_own_record_only() -> None:
    def chosen(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return 1 if count == 2 else {b"moves": 0}[key or b""]

    options = producer_options(partitioner=chosen)
    buffer, failures = Buffer(options, SystemClock()), list[RaftlogError]()
    router = Router(TOPIC, buffer=buffer, rng=random.Random(1), partitioner=chosen)
    router.set_queues([PartitionQueue(TOPIC, 0), PartitionQueue(TOPIC, 1)])
    queue = router.route(b"moves", None, None, 40)
    placed = [buffer.append(queue, Record(None, key), 40, None) for key in (b"raises", b"moves")]
    batches = [batch for batch, _ in filter(None, placed)][:1]
    narrowing = Narrowing(router, buffer, failures.append)
    narrowing.shrink(1)
    assert narrowing.left(queue, batches) == [router.queues[0]]
    assert len(router.queues) == 1
    assert [str(one) for one in failures] == [
        "the partitioner raised KeyError: b'raises'; orders has 1 partition"
    ]
    moved = router.queues[0].open
    assert moved is not None
    assert [record.key for record in moved.records] == [b"moves"]


# requirement: K3
async def test_a_record_whose_partitioner_raises_fails_and_the_others_move() -> None:
    def chosen(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return {2: {b"raises": 1, b"moves": 1}, 1: {b"moves": 0}}[count][key or b""]

    async with (
        whole_broker(partitions=2) as whole,
        VirtualClient(whole.url) as client,
        VirtualClient(whole.url) as admin,
    ):
        await kept_partitions(whole)
        producer = client.producer(TOPIC, partitioner=chosen, linger=0)
        await (await producer.send("warm", key="moves"))
        await admin.topics.decommission_partitions(TOPIC, [1])
        fails, moves = [await producer.send("x", key=key) for key in ("raises", "moves")]
        async with asyncio.timeout(20):
            await producer.flush()
        failure = fails.exception()
        assert isinstance(failure, InvalidRecord)
        assert str(failure).startswith("the partitioner raised KeyError: b'raises'")
        assert isinstance(failure.__cause__, KeyError)
        assert (await moves).partition == 0
        assert (await (await producer.send("x", key="moves"))).partition == 0
        await producer.close()
        assert producer.failure is failure


async def test_a_record_that_moves_during_the_close_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        whole_broker(partitions=2) as whole,
        VirtualClient(whole.url) as client,
        VirtualClient(whole.url) as admin,
    ):
        producer = client.producer(TOPIC, linger=0)
        for partition in range(2):
            await (await producer.send("kept", partition=partition))
        await admin.topics.decommission_partitions(TOPIC, [1])
        whole.trouble("partitions/1/records", Trouble.HELD)
        key = next(f"k{n}" for n in range(99) if partition_for_key(f"k{n}".encode(), 2) == 1)
        pending = await producer.send("moves", key=key)
        close = PartitionSender.close

        async def close_late(sender: PartitionSender) -> None:
            await close(sender)
            if sender.queue.partition == 0:  # from here on its queue is not emptied
                whole.release.set()
                async with asyncio.timeout(20):
                    await asyncio.gather(*leaving._attempts)

        monkeypatch.setattr(PartitionSender, "close", close_late)
        staying, leaving = producer._senders.values()
        assert staying.queue.partition == 0
        while not leaving._attempts:
            await asyncio.sleep(0)
        await producer.close(0)
        assert isinstance(pending.exception(), NotSent)
        assert not producer._buffer.unfinished
        assert [value for _, value in (await stored(client, 2))[0]] == ["kept"]


# requirement: K6 G11
async def test_a_group_reads_a_partition_to_its_end_and_then_its_successor() -> None:
    """Producer, delayed messages and group go on without an error."""
    key = next(f"k{n}" for n in range(99) if partition_for_key(f"k{n}".encode(), 2) == 1)
    async with (
        whole_broker(partitions=2) as whole,
        VirtualClient(whole.url) as client,
        client.consumer("readers", TOPIC, reset="earliest", commit_interval="50ms") as consumer,
        client.producer(TOPIC, linger=0) as producer,
        asyncio.timeout(60),
    ):
        seen = Counter[str]()

        async def seen_are(*values: str) -> None:
            while not seen.keys() >= {*values}:
                if (message := await consumer.poll("100ms")) is not None:
                    seen[message.value.decode()] += 1

        old = await (await producer.send("old", key=key))
        await client.delayed.send(TOPIC, "delayed", key=key, delay="300ms")
        await seen_are("old")
        for _ in range(2):
            changed = await client.topics.decommission_partitions(TOPIC, [1])
            assert changed.decommissioned == [1], "a repetition changes nothing"
        assert (await (await producer.send("moved", key=key))).partition == 0
        await seen_are("moved", "delayed")
        end = await client.partition(TOPIC, 1).offset_at("latest")
        await client.partitions.delete_before(TOPIC, 1, end)
        while {target.partition for target in consumer.assignment} != {0}:
            await consumer.poll("100ms")
        with pytest.raises(PartitionNotFound):
            await client.partition(TOPIC, 1).read("earliest")
        assert (await client.topics.add_partitions(TOPIC, 1, expected=1)).partitions == 2
        new = await client.send(TOPIC, "new", partition=1)
        assert new.offset >= end > old.offset, "no offset names two records"
        await seen_are("new")
        assert seen == Counter(["old", "delayed", "moved", "new"])
