"""A producer and its caller: many records at once, room in the buffer, and functions of the user."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise

import pytest

from raftlog import Client as BlockingClient
from raftlog.aio import Client
from raftlog.client.portal import Portal
from raftlog.client.receipts import Receipt
from raftlog.errors import NotSent, PartitionDecommissioned, PartitionNotFound, RaftlogError, RecordTooLarge
from raftlog.records.builder import Record
from raftlog.records.keys import partition_for_key
from raftlog.testing.waits import LIMIT_S
from tests.helpers.async_tests import in_real_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, WholeBroker, whole_broker

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
            with pytest.raises(PartitionNotFound):
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


RECORDS = "/records"


# requirement: P6
async def test_a_large_record_waits_for_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        whole_broker(1) as whole,
        VirtualClient(whole.url) as client,
        client.producer(TOPIC, linger=0, buffer_bytes=1_000_000) as producer,
    ):
        await (await producer.send("warm"))
        waits = 0
        make_ready = producer.make_ready

        async def counted(topic: str | None) -> None:
            nonlocal waits
            waits += 1
            assert waits < 10, "send asks again and again, and never waits"
            await make_ready(topic)

        monkeypatch.setattr(producer, "make_ready", counted)
        whole.trouble(RECORDS, Trouble.HELD)
        await producer.send(b"s" * 400_000)
        large = asyncio.create_task(producer.send(b"l" * 700_000))
        await asyncio.sleep(0)
        assert not large.done()
        whole.release.set()
        assert (await (await large)).offset == 2
        assert waits == 1
        await producer.send("fits at once")
        assert waits == 1


# requirement: P6
@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, ValueError])
async def test_what_on_ack_raises_does_not_hold_up_the_producer(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def on_ack(receipt: Receipt | None, error: RaftlogError | None) -> None:
        raise kind

    async with whole_broker(1) as whole, VirtualClient(whole.url) as client:
        producer = client.producer(TOPIC, linger=0, buffer_bytes=20_000, batch_bytes=4_000)
        try:
            async with asyncio.timeout(20):
                pending = [await producer.send(b"x" * 1_500, on_ack=on_ack) for _ in range(40)]
                assert [(await one).offset for one in pending] == [*range(40)]
        finally:
            await producer.close(0)
    assert caplog.text.count("on_ack raised an exception") == 40


def test_a_call_that_exits_does_not_end_the_thread_of_a_client() -> None:
    async def exits() -> None:
        sys.exit("of a decoder")

    async def answers() -> str:
        return "an answer"

    portal = Portal()
    with pytest.raises(SystemExit, match="of a decoder"):
        portal.call(exits)
    assert portal.call(answers) == "an answer"
    portal.close()


@in_real_time
async def test_calls_fail_when_the_thread_of_a_client_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    portal, began = Portal(), asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the thread ends by this error

    async def waits() -> None:
        loop.call_soon_threadsafe(began.set)
        await asyncio.Event().wait()

    def broken() -> None:
        raise OSError("the selector is broken")

    call = asyncio.create_task(portal.awaited(waits))
    await began.wait()
    monkeypatch.setattr(portal._loop, "_run_once", broken)
    portal.post(lambda: None)
    with pytest.raises(RaftlogError, match="the client's thread ended"):
        await call
    assert not portal.is_open
    with pytest.raises(NotSent, match="the client is closed"):
        await portal.awaited(waits)
    portal.close()
    portal._thread.join(LIMIT_S)  # its hook is called after the calls have failed
    assert not portal._thread.is_alive()
