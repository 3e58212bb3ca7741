"""Reading records of some tags at the leader: what is sent, how far a read looks, and what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from partitions.replica import selection
from partitions.values import FetchRequest, Start
from raftlog.errors import NoLeader, NotLeader, OffsetOutOfRange
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import with_producer
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of
from tests.helpers.tagged import tagged, tagged_batch
from tests.helpers.transactional import TransactionalProducer
from tests.helpers.virtual_time import eventually

# requirement: A1, A2, A10

PAID = ("paid",)
NEW, BOTH = tagged(b"n", "new"), tagged(b"b", "new", "paid")


@in_virtual_time_with(PartitionCluster)
async def test_only_matching_records_are_sent_and_the_position_moves_on(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(tagged_batch(NEW, BOTH, NEW))
    await leader.append(tagged_batch(NEW, NEW))
    await leader.append(tagged_batch(tagged(b"untagged")))
    await leader.append(tagged_batch(NEW, tagged(b"p", "paid")))
    await leader.append(tagged_batch(NEW))
    result = await replica.fetch(fetch_from(0, tags=PAID))
    assert values_of(result.data) == [b"b", b"p"]
    assert [batch.base_offset for batch in split_batches(result.data)] == [0, 6]
    assert (result.offset, result.next_offset, result.high_watermark) == (0, 9, 9)
    several = await replica.fetch(fetch_from(0, tags=("no such", "new")))
    assert values_of(several.data) == [b"n", b"b", b"n", b"n", b"n", b"n", b"n"]
    nothing = await replica.fetch(fetch_from(3, tags=("no such",)))
    assert (nothing.data, nothing.next_offset) == (b"", 9)


@in_virtual_time_with(PartitionCluster)
async def test_a_batch_that_lists_no_tags_is_sent_whole(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(tagged_batch(NEW, BOTH, codec=Codec.LZ4, lists_tags=False))
    await leader.append(tagged_batch(NEW, BOTH, codec=Codec.LZ4))
    result = await replica.fetch(fetch_from(0, tags=PAID))
    assert values_of(result.data) == [b"n", b"b", b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_a_response_is_bounded_by_its_bytes(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    for _ in range(4):
        await leader.append(tagged_batch(NEW, BOTH))
    one = await replica.fetch(fetch_from(0, tags=PAID, bytes_max=1))
    assert (values_of(one.data), one.next_offset) == ([b"b"], 2)
    two = await replica.fetch(fetch_from(2, tags=PAID, bytes_max=2 * len(one.data) + 1))
    assert (values_of(two.data), two.next_offset) == ([b"b", b"b"], 6)
    rest = await replica.fetch(fetch_from(two.next_offset, tags=PAID))
    assert (values_of(rest.data), rest.next_offset) == ([b"b"], 8)


async def test_one_read_looks_at_a_bounded_part_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(tagged_batch(NEW))
    monkeypatch.setattr(selection, "LOOKED_AT_BYTES_MAX", 10 * size)
    monkeypatch.setattr("partitions.replica.reads.STEP_BYTES", 2 * size)
    async with PartitionCluster() as cluster:
        leader = await cluster.leader()
        replica = leader.orders
        for _ in range(25):
            await leader.append(tagged_batch(NEW))
        at, seen = 0, []
        while at < 25:
            result = await replica.fetch(fetch_from(at, tags=PAID, wait_ms=60_000))
            assert (result.data, result.high_watermark) == (b"", 25)
            seen.append(result.next_offset - at)
            at = result.next_offset
            if len(seen) == 2:
                await leader.append(tagged_batch(BOTH))
                break
        assert seen == [10, 10]
        last = await replica.fetch(fetch_from(at, tags=PAID, wait_ms=60_000))
        assert (values_of(last.data), last.next_offset) == ([b"b"], 26)


@in_virtual_time_with(PartitionCluster)
async def test_a_long_poll_waits_for_a_match_and_not_for_a_record(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    loop = asyncio.get_running_loop()
    parked = asyncio.create_task(replica.fetch(fetch_from(0, tags=PAID, wait_ms=30_000)))
    for _ in range(5):
        await leader.append(tagged_batch(NEW))
        await asyncio.sleep(0.1)
    assert not parked.done()
    await leader.append(tagged_batch(BOTH))
    result = await parked
    assert (values_of(result.data), result.next_offset) == ([b"b"], 6)
    began = loop.time()
    empty = await replica.fetch(fetch_from(6, tags=PAID, wait_ms=2_000))
    assert (empty.data, empty.next_offset) == (b"", 6)
    assert loop.time() - began >= 1.9
    assert replica.parked == 0


@in_virtual_time_with(PartitionCluster)
async def test_at_its_time_out_a_long_poll_has_moved_over_what_it_skipped(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    parked = asyncio.create_task(replica.fetch(fetch_from(0, tags=PAID, wait_ms=2_000)))
    await leader.append(tagged_batch(NEW, NEW, NEW))
    result = await parked
    assert (result.data, result.next_offset, result.high_watermark) == (b"", 3, 3)


@in_virtual_time_with(PartitionCluster)
async def test_bytes_min_counts_what_matches(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(tagged_batch(NEW, BOTH))
    one = len((await replica.fetch(fetch_from(0, tags=PAID))).data)
    wanted = fetch_from(0, tags=PAID, bytes_min=2 * one, wait_ms=30_000)
    parked = asyncio.create_task(replica.fetch(wanted))
    await leader.append(tagged_batch(*[NEW] * 100))
    await asyncio.sleep(0.1)
    assert not parked.done()
    await leader.append(tagged_batch(NEW, BOTH))
    assert values_of((await parked).data) == [b"b", b"b"]
    some = await replica.fetch(fetch_from(0, tags=PAID, bytes_min=9 * one, wait_ms=30))
    assert values_of(some.data) == [b"b", b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_losing_leadership_ends_the_wait_for_a_match(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(tagged_batch(NEW))
    latest = FetchRequest(position=Start.LATEST, wait_ms=60_000, tags=PAID)
    parked = asyncio.create_task(replica.fetch(latest))
    await eventually(lambda: replica.parked == 1)
    cluster.network.isolate(leader.node_id)
    with pytest.raises(NotLeader):
        await parked


@in_virtual_time_with(PartitionCluster)
async def test_outside_of_the_log_the_errors_are_those_of_other_reads(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(tagged_batch(NEW))
    with pytest.raises((OffsetOutOfRange, NoLeader)):
        await replica.fetch(fetch_from(7, tags=PAID))
    with pytest.raises((OffsetOutOfRange, NoLeader)):
        await replica.fetch(fetch_from(7, tags=PAID, wait_ms=60_000))
    end = await replica.fetch(fetch_from(1, tags=PAID))
    assert (end.data, end.next_offset) == (b"", 1)


@in_virtual_time_with(PartitionCluster)
async def test_open_and_aborted_transactions_are_not_shown(cluster: PartitionCluster) -> None:
    # requirement: D3
    broker = cluster.any
    request = fetch_from(0, tags=PAID, committed_only=True)

    async def fetched() -> tuple[list[bytes | None], int]:
        result = await broker.gateway.fetch(ORDERS, request)
        return values_of(result.data), result.next_offset

    producer = await TransactionalProducer(broker).open()
    await producer.write(b"x")
    number = producer.handle
    assert await fetched() == ([], 0)
    aborted = with_producer(tagged_batch(NEW, BOTH), number.producer_id, number.epoch, 1, in_transaction=True)
    await producer.send(aborted)
    assert await fetched() == ([], 0)
    assert not await producer.abort()
    assert await fetched() == ([], 4)
    assert values_of((await broker.gateway.fetch(ORDERS, fetch_from(0, tags=PAID))).data) == [
        b"x",
        b"b",
    ]
    await (await cluster.leader()).append(batch_of(b"foreign"))
    assert await fetched() == ([b"foreign"], 5)
