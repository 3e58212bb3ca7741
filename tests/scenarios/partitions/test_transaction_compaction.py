"""Transactions in a compacted topic: what is removed, what stays, and what replicas derive from the rest."""

from __future__ import annotations

from partitions.values import QUORUM, FetchRequest
from raftlog.records.batch import Batch, Codec, split_batches
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.reader import read_records
from raftlog.types import Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.compacting import records_in, stored
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.orders import ORDERS
from tests.helpers.transactional import TransactionalProducer
from tests.helpers.virtual_time import eventually

CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1024, "delete.retention.ms": 0}
Newest = dict[bytes | None, bytes | None]


class Writers:
    """Of one compacted partition: a plain one, and one in transactions."""

    def __init__(self, cluster: PartitionCluster) -> None:
        self.cluster = cluster
        self._names = 0

    async def plain(self, key: bytes, value: bytes | None) -> int:
        """One record without a transaction; its offset."""
        data = build_batch([Record(value, key)], codec=Codec.NONE, timestamp_ms=0)
        leader = await self.cluster.leader()
        receipt = await leader.gateway.append(ORDERS, data, acks=QUORUM, timeout_ms=5_000)
        return receipt.base_offset

    async def opened(self) -> TransactionalProducer:
        """A producer whose transaction has no records yet."""
        self._names += 1
        return await TransactionalProducer(await self.cluster.leader(), f"copy-{self._names}").open()

    async def transaction(self, *pairs: tuple[bytes, bytes | None], is_commit: bool) -> list[int]:
        """One batch a record; their offsets."""
        producer = await self.opened()
        offsets = [await write(producer, key, value) for key, value in pairs]
        assert await (producer.commit() if is_commit else producer.abort()) is is_commit
        return offsets

    async def fill(self, key: bytes = b"other") -> None:
        """Records of another key, until what stands before is in closed segments, everywhere."""
        for _ in range(10):
            await self.plain(key, b"x" * 150)
        leader = await self.cluster.leader()
        end = leader.orders.group.last_index
        await eventually(lambda: all(broker.orders.group.applied_index >= end for broker in self.cluster))


async def write(producer: TransactionalProducer, key: bytes, value: bytes | None) -> int:
    handle = producer.handle
    data = build_batch([Record(value, key)], codec=Codec.NONE, timestamp_ms=0)
    sequence = producer.sequences.get(("orders", 0), 0)
    producer.sequences["orders", 0] = sequence + 1
    body = with_producer(data, handle.producer_id, handle.epoch, sequence, in_transaction=True)
    return (await producer.send(body)).base_offset


def batches_on(cluster: PartitionCluster, broker: ControlledBroker) -> list[Batch]:
    return stored(broker.orders.group.log)


async def newest_seen(broker: ControlledBroker, start: int = 0, *, committed_only: bool = True) -> Newest:
    """What a reader of all records knows in the end."""
    position, seen = Offset(start), Newest()
    while True:
        request = FetchRequest(position=position, committed_only=committed_only)
        result = await broker.gateway.fetch(ORDERS, request)
        for batch in split_batches(result.data):
            if not batch.header.is_control:
                seen |= {one.key: one.value for one in read_records(batch) if one.offset >= position}
        if result.next_offset == position:
            return seen
        position = result.next_offset


@in_virtual_time_with(lambda: PartitionCluster(config=CONFIG))
async def test_an_aborted_record_replaces_no_committed_one(cluster: PartitionCluster) -> None:
    # requirement: D3
    writers = Writers(cluster)
    await writers.plain(b"k", b"committed")
    await writers.transaction((b"k", b"aborted"), (b"k", None), is_commit=False)
    await writers.fill()
    await cluster.look_for_compaction(5)
    for broker in cluster:
        assert b"committed" in [record.value for record in records_in(batches_on(cluster, broker))]
    assert (await newest_seen(cluster.any))[b"k"] == b"committed"


@in_virtual_time_with(lambda: PartitionCluster(config=CONFIG))
async def test_a_deleted_record_of_a_transaction_does_not_come_back(cluster: PartitionCluster) -> None:
    # requirement: D3
    writers = Writers(cluster)
    await writers.transaction((b"k", b"committed"), is_commit=True)
    await writers.plain(b"k", None)
    await writers.fill()
    await cluster.look_for_compaction(5)
    assert (await newest_seen(cluster.any)).get(b"k") is None


@in_virtual_time_with(lambda: PartitionCluster(config=CONFIG))
async def test_a_committed_record_replaces_older_ones_and_is_replaced(cluster: PartitionCluster) -> None:
    # requirement: D3
    writers = Writers(cluster)
    first = await writers.plain(b"k", b"first")
    second, third = await writers.transaction((b"k", b"second"), (b"l", b"third"), is_commit=True)
    fourth = await writers.plain(b"k", b"fourth")
    await writers.fill()
    await cluster.look_for_compaction()
    for broker in cluster:
        left = {record.offset for record in records_in(batches_on(cluster, broker))}
        assert left >= {third, fourth}
        assert not left & {first, second}
    assert await newest_seen(cluster.any) == {b"k": b"fourth", b"l": b"third", b"other": b"x" * 150}


@in_virtual_time_with(lambda: PartitionCluster(config=CONFIG))
async def test_the_range_of_removed_aborted_records_reaches_new_replicas(cluster: PartitionCluster) -> None:
    # requirement: D3
    writers = Writers(cluster)
    away = cluster.followers(await cluster.leader())[0].node_id
    await cluster.stop(away)
    offsets = await writers.transaction(*[(b"k", b"a" * 200)] * 9, is_commit=False)
    for _ in range(10):
        await writers.plain(b"other", b"x" * 150)
    await cluster.look_for_compaction()
    await cluster.start(away)
    await eventually(lambda: ("orders", 0) in cluster.brokers[away].manager.replicas)
    await writers.fill()
    tables = [cluster.brokers[node].orders.machine.transactions for node in cluster.replicas]
    assert len({table.snapshot() for table in tables}) == 1
    for node in cluster.replicas:
        batches = stored(cluster.brokers[node].orders.group.log)
        assert not {record.offset for record in records_in(batches)} & {*offsets}
        assert [batch.base_offset for batch in batches if batch.header.is_transactional] == [
            offsets[0],
            offsets[-1] + 1,
        ]


@in_virtual_time_with(lambda: PartitionCluster(config=CONFIG))
async def test_nothing_from_an_open_transaction_on_is_compacted(cluster: PartitionCluster) -> None:
    # requirement: D3
    writers = Writers(cluster)
    producer = await writers.opened()
    await writers.plain(b"k", b"first")
    await write(producer, b"k", b"open")
    await writers.plain(b"k", b"third")
    await writers.fill()
    before = [batches_on(cluster, broker) for broker in cluster]
    await cluster.look_for_compaction(3)
    assert [batches_on(cluster, broker) for broker in cluster] == before
    assert await producer.commit()
    await writers.fill()
    await cluster.look_for_compaction()
    after = [batches_on(cluster, broker) for broker in cluster]
    assert all(len(left) < len(whole) for left, whole in zip(after, before, strict=True))
    assert (await newest_seen(cluster.any))[b"k"] == b"third"


@in_virtual_time_with(lambda: PartitionCluster(config=CONFIG))
async def test_a_marker_stays_although_its_records_are_gone(cluster: PartitionCluster) -> None:
    writers = Writers(cluster)
    (offset,) = await writers.transaction((b"k", b"first"), is_commit=True)
    await writers.plain(b"k", b"second")
    await writers.fill()
    await cluster.look_for_compaction(5)
    for broker in cluster:
        markers = [
            batch.base_offset
            for batch in batches_on(cluster, broker)
            if batch.header.is_control and batch.header.is_transactional
        ]
        assert markers == [offset + 1]
