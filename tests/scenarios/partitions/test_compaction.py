"""Compacted topics on brokers, with tombstones, transactions and states: the newest record stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from groups.records import TOPIC
from groups.requests import Commit, DeleteGroup, OffsetCommit, Request
from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.replica.replica import PartitionReplica
from partitions.values import QUORUM, AtTime, FetchRequest
from raftlog.errors import InvalidRecord
from raftlog.records.batch import Batch, Codec, split_batches
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.reader import StoredRecord, read_records
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, Offset, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.compacting import records_in, stored
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster, PartitionCluster
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.transactional import TransactionalProducer
from tests.helpers.virtual_time import eventually

KEYS = 4


async def write(cluster: ControlledCluster, first: int, last: int) -> None:
    leader = (await cluster.leader()).orders
    for number in range(first, last + 1):
        body = batch_of(b"v%d" % number + b"x" * 100, key=b"%d" % (number % KEYS))
        await leader.append(body, acks=QUORUM, timeout_ms=5000)
    await eventually(
        lambda: all(
            broker.orders.group.applied_index == leader.group.last_index
            for broker in cluster.brokers.values()
        )
    )


async def read_all(replica: PartitionReplica, *, bytes_max: int = 300) -> list[StoredRecord]:
    """As a consumer reads: chunk by chunk."""
    offset, found = Offset(0), list[StoredRecord]()
    while offset < replica.high_watermark:
        result = await replica.fetch(FetchRequest(position=offset, bytes_max=bytes_max))
        assert result.next_offset > offset
        for batch in split_batches(result.data):
            if not batch.header.is_control:
                found += [record for record in read_records(batch) if record.offset >= offset]
        offset = result.next_offset
    return found


@in_virtual_time_with(ControlledCluster)
async def test_the_newest_records_are_served_by_every_replica(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **{"cleanup.policy": "compact", "segment.bytes": 1024})
    await write(cluster, 0, 39)
    before = {broker.node_id: records_in(stored(broker.orders.group.log)) for broker in cluster}
    await cluster.look_for_compaction()
    for broker in cluster:
        log = broker.orders.group.log
        left = records_in(stored(log))
        closed_end = log.closed_segments[-1].last + 1  # type: ignore[attr-defined]
        whole = before[broker.node_id]
        assert len(left) == KEYS + sum(record.offset >= closed_end for record in whole)
        assert {record.key: record for record in left} == {record.key: record for record in whole}
        assert broker.compaction.counts.records_removed == len(whole) - len(left)
    leader = (await cluster.leader()).orders
    assert await read_all(leader) == records_in(stored(leader.group.log))
    first = min(record.offset for record in await read_all(leader))
    assert first > 0
    offset, timestamp_ms = await leader.offset_at(AtTime(0))
    assert (offset, timestamp_ms is None) == (first, False)
    assert await leader.offset_at(Offset(0)) == (0, None)


@pytest.mark.parametrize("error", [MemoryError(), ValueError("planted")], ids=repr)
@in_virtual_time_with(ControlledCluster)
async def test_an_unexpected_error_in_one_partition_keeps_no_other_from_its_compaction(
    cluster: ControlledCluster, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("broken", **{"cleanup.policy": "compact"})
    await cluster.create("orders", **{"cleanup.policy": "compact", "segment.bytes": 1024})
    await write(cluster, 0, 39)
    rolled = SegmentedLog.compactable_segments.fget  # type: ignore[attr-defined]

    def compactable(log: SegmentedLog) -> list[ClosedSegment]:
        if "broken" in log.directory:
            raise error
        return cast("list[ClosedSegment]", rolled(log))

    monkeypatch.setattr(SegmentedLog, "compactable_segments", property(compactable))
    failed = cluster.expect_failed_duties()
    await cluster.look_for_compaction()
    assert all(broker.compaction.counts.records_removed for broker in cluster)
    assert failed == 3 * ["compaction of broken/0"]


@in_virtual_time_with(ControlledCluster)
async def test_a_log_is_compacted_again_once_enough_is_dirty(cluster: ControlledCluster) -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": 1024, "min.cleanable.dirty.ratio": "0.7"}
    await cluster.create("orders", **config)
    await write(cluster, 0, 39)
    await cluster.look_for_compaction()
    counts = [broker.compaction.counts.bytes_read for broker in cluster]
    await cluster.look_for_compaction()
    assert counts == [broker.compaction.counts.bytes_read for broker in cluster]
    await write(cluster, 40, 79)
    await cluster.look_for_compaction()
    leader = (await cluster.leader()).orders
    assert len(await read_all(leader)) < KEYS + 12
    assert all(
        count > before
        for count, before in zip(
            [broker.compaction.counts.bytes_read for broker in cluster], counts, strict=True
        )
    )


@in_virtual_time_with(ControlledCluster)
async def test_a_replica_that_was_away_gets_a_compacted_log(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **{"cleanup.policy": "compact", "segment.bytes": 1024})
    await write(cluster, 0, 20)
    away = await stop_a_follower(cluster)
    await write(cluster, 21, 60)
    await cluster.look_for_compaction()
    back = await cluster.start(away)
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    await write(cluster, 61, 65)
    await cluster.look_for_compaction()
    newest = [
        {record.key: record for record in records_in(stored(broker.orders.group.log))} for broker in cluster
    ]
    assert newest[0] == newest[1] == newest[2]
    assert sorted(record.value or b"" for record in newest[0].values()) == [
        b"v%d" % number + b"x" * 100 for number in (62, 63, 64, 65)
    ]


@in_virtual_time_with(ControlledCluster)
async def test_a_record_without_a_key_is_refused(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **{"cleanup.policy": "compact", "validate.records": "false"})
    leader = (await cluster.leader()).orders
    with pytest.raises(InvalidRecord, match=r"record 0 has no key.* cleanup\.policy"):
        await leader.append(batch_of(b"v"), acks=QUORUM, timeout_ms=5000)
    await leader.append(batch_of(b"v", key=b""), acks=QUORUM, timeout_ms=5000)


@in_virtual_time_with(ControlledCluster)
async def test_a_topic_that_is_compacted_and_deleted_loses_old_segments(cluster: ControlledCluster) -> None:
    config = {"cleanup.policy": "compact,delete", "segment.bytes": 1024, "retention.bytes": 2048}
    await cluster.create("orders", **config)
    await write(cluster, 0, 39)
    for broker in cluster:
        await broker.retention.look()
    await cluster.look_for_compaction()
    leader = (await cluster.leader()).orders
    assert leader.group.log.first_index > 0
    assert {record.key for record in records_in(stored(leader.group.log))} == {b"0", b"1", b"2", b"3"}


async def delete_keys(
    cluster: ControlledCluster,
    keys: Sequence[bytes] = tuple(b"%d" % number for number in range(KEYS)),
    behind: bytes = b"other",
) -> list[int]:
    """A tombstone for each key, and a segment's worth of records of another key behind them."""
    leader, offsets = await cluster.leader(), list[int]()
    for key in keys:
        data = build_batch([Record(None, key)], codec=Codec.NONE, timestamp_ms=0)
        receipt = await leader.append(data, acks=QUORUM, timeout_ms=5000)
        offsets.append(receipt.base_offset)
    for _ in range(10):
        await leader.append(batch_of(b"x" * 150, key=behind), acks=QUORUM, timeout_ms=5000)
    await level(cluster)
    return offsets


def voters_on(broker: ControlledBroker) -> set[NodeId]:
    replica = broker.manager.replicas.get(("orders", 0))
    return set() if replica is None or not replica.leader else {*replica.group.membership.voters}


async def level(cluster: ControlledCluster) -> None:
    leader = (await cluster.leader()).orders
    await eventually(
        lambda: all(
            ("orders", 0) in broker.manager.replicas
            and broker.orders.group.applied_index == leader.group.last_index
            for broker in cluster
        )
    )


def tombstones(broker: ControlledBroker) -> list[int]:
    return [each.offset for each in records_in(stored(broker.orders.group.log)) if each.value is None]


TOMBSTONES = {"cleanup.policy": "compact", "segment.bytes": 1024, "delete.retention.ms": 0}


@in_virtual_time_with(ControlledCluster)
async def test_a_tombstone_goes_once_all_replicas_are_clean(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **TOMBSTONES)
    await write(cluster, 0, 20)
    await delete_keys(cluster)
    await cluster.look_for_compaction()
    assert [len(tombstones(broker)) for broker in cluster] == [KEYS] * 3
    await cluster.look_for_compaction(4, pause_s=0.01)
    assert [tombstones(broker) for broker in cluster] == [[]] * 3
    assert {one.key for one in await read_all((await cluster.leader()).orders)} == {b"other"}
    asked = [broker.compaction.counts.questions for broker in cluster]
    await cluster.look_for_compaction(3)
    assert asked == [broker.compaction.counts.questions for broker in cluster]


@in_virtual_time_with(ControlledCluster)
async def test_an_old_tombstone_goes_before_a_young_one(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **{**TOMBSTONES, "delete.retention.ms": 20_000})
    await write(cluster, 0, 20)
    await delete_keys(cluster)
    await cluster.look_for_compaction()
    await asyncio.sleep(30)
    young = await delete_keys(cluster, [b"other"], b"third")
    await cluster.look_for_compaction(5)
    assert [tombstones(broker) for broker in cluster] == [young] * 3
    await asyncio.sleep(30)
    await cluster.look_for_compaction(5)
    assert [tombstones(broker) for broker in cluster] == [[]] * 3


@in_virtual_time_with(ControlledCluster)
async def test_a_replica_that_is_away_keeps_tombstones_on_all_replicas(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **TOMBSTONES)
    await write(cluster, 0, 20)
    away = await stop_a_follower(cluster)
    await delete_keys(cluster)
    await cluster.look_for_compaction(5, pause_s=0.01)
    assert [len(tombstones(broker)) for broker in cluster] == [KEYS] * 2
    await cluster.start(away)
    await level(cluster)
    await cluster.look_for_compaction(5, pause_s=0.01)
    assert [tombstones(broker) for broker in cluster] == [[]] * 3
    for broker in cluster:
        assert {each.key for each in records_in(stored(broker.orders.group.log))} == {b"other"}


@in_virtual_time_with(ControlledCluster)
async def test_a_replica_that_is_added_again_begins_empty(cluster: ControlledCluster) -> None:
    """Its former log has records whose tombstones are gone."""
    await cluster.create("orders", **TOMBSTONES)
    await write(cluster, 0, 20)
    away = await stop_a_follower(cluster)
    rest = tuple(node for node in cluster.nodes if node != away)
    await move(cluster, *rest)
    await delete_keys(cluster)
    await cluster.look_for_compaction(5, pause_s=0.01)
    assert [tombstones(broker) for broker in cluster] == [[]] * 2
    back = await cluster.start(away)
    permits, ask = back.manager._permits, back.manager._permits.ask

    async def not_yet(
        target: TopicPartition, partition: PartitionInfo, *, is_added_again: bool = False
    ) -> bool:
        return is_added_again and await ask(target, partition, is_added_again=True)

    permits.ask = not_yet  # type: ignore[method-assign]
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    assert back.orders.group.last_index == 20
    await cluster.registered()
    await move(cluster, *rest, away)
    await level(cluster)
    for broker in cluster:
        assert {each.key for each in records_in(stored(broker.orders.group.log))} == {b"other"}


async def move(cluster: ControlledCluster, *nodes: NodeId) -> None:
    wish = MoveReplicas("orders", 0, nodes)
    await cluster.any.admin.change_replicas(wish, 5000)
    holding = [broker for broker in cluster if broker.node_id in nodes]
    await eventually(lambda: all(voters_on(broker) == {*nodes} for broker in holding))


CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1024, "delete.retention.ms": 0}
GONE = b"of the past"


def offsets_on(broker: ControlledBroker) -> PartitionReplica:
    return broker.manager.replicas[TOPIC, 0]


def state_of(broker: ControlledBroker) -> bytes:
    return offsets_on(broker).machine.snapshot()


async def offsets_topic(cluster: ControlledCluster) -> TopicInfo:
    topic = await cluster.any.controller.create_topic(
        TOPIC, partitions=1, replication_factor=3, config=CONFIG, timeout_ms=5000, internal=True
    )
    await cluster.settled(topic.version)
    return topic


async def ask(cluster: ControlledCluster, request: Request) -> None:
    await cluster.any.groups.service.ask(request, timeout_ms=5000)


async def commit_offset(cluster: ControlledCluster, group: str, offset: int) -> None:
    offsets = (OffsetCommit(topic="orders", topic_id="t", partition=0, offset=offset),)
    await ask(cluster, Commit(group=group, offsets=offsets, is_forced=True))


async def offsets_level(cluster: ControlledCluster) -> None:
    def is_level() -> bool:
        replicas = [broker.manager.replicas.get((TOPIC, 0)) for broker in cluster]
        if None in replicas:
            return False
        ends = {one.group.applied_index for one in replicas if one is not None}
        return len(ends) == 1 and ends == {offsets_on(cluster.any).group.last_index}

    await eventually(is_level)


def has_the_past(broker: ControlledBroker) -> bool:
    return any(GONE in (one.key or b"") for one in records_in(stored(offsets_on(broker).group.log)))


async def offset_of_the_past(cluster: ControlledCluster) -> int:
    """A group was stored in an early segment, deleted in a later one, and is gone: where it was deleted."""
    await offsets_topic(cluster)
    await commit_offset(cluster, GONE.decode(), 7)
    for offset in range(30):
        await commit_offset(cluster, "g", offset)
    await ask(cluster, DeleteGroup(group=GONE.decode()))
    await offsets_level(cluster)
    deleted_at = offsets_on(cluster.any).group.last_index
    for offset in range(30, 60):
        await commit_offset(cluster, "g", offset)
    await offsets_level(cluster)
    assert all(has_the_past(broker) for broker in cluster)
    await cluster.look_for_compaction(6, pause_s=0.05)
    assert not any(has_the_past(broker) for broker in cluster)
    return deleted_at


async def stop_a_follower(cluster: ControlledCluster) -> NodeId:
    """Stop a broker that does not lead the partition; its id."""
    leader = (await cluster.leader()).orders
    away = next(broker.node_id for broker in cluster if broker.orders is not leader)
    await cluster.stop(away)
    return away


def lose_states_above(disk: FakeFilesystem, directory: str, index: int) -> None:
    """Remove the states above an index, as if they were damaged or not on the disk yet."""
    for name in disk.list_directory(directory):
        if name == "snapshot" or (name.endswith(".state") and int(name.removesuffix(".state")) > index):
            disk.remove(f"{directory}/{name}")


@in_virtual_time_with(ControlledCluster)
async def test_a_deleted_offset_stays_deleted_without_the_newer_states(cluster: ControlledCluster) -> None:
    # requirement: ST2
    deleted_at = await offset_of_the_past(cluster)
    node = NodeId(2)
    log = offsets_on(cluster.brokers[node]).group.log
    assert isinstance(log, SegmentedLog)
    await cluster.stop(node)
    disk = cluster.disks[node]
    assert isinstance(disk, FakeFilesystem)
    lose_states_above(disk, log.directory, deleted_at)
    back = await cluster.start(node)
    await offsets_level(cluster)
    other = next(broker for broker in cluster if broker is not back)
    assert GONE not in state_of(back)
    assert state_of(back) == state_of(other)


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
        offsets = [await write_in(producer, key, value) for key, value in pairs]
        assert await (producer.commit() if is_commit else producer.abort()) is is_commit
        return offsets

    async def fill(self, key: bytes = b"other") -> None:
        """Records of another key, until what stands before is in closed segments, everywhere."""
        for _ in range(10):
            await self.plain(key, b"x" * 150)
        leader = await self.cluster.leader()
        end = leader.orders.group.last_index
        await eventually(lambda: all(broker.orders.group.applied_index >= end for broker in self.cluster))


async def write_in(producer: TransactionalProducer, key: bytes, value: bytes | None) -> int:
    handle = producer.handle
    data = build_batch([Record(value, key)], codec=Codec.NONE, timestamp_ms=0)
    sequence = producer.sequences.get(("orders", 0), 0)
    producer.sequences["orders", 0] = sequence + 1
    body = with_producer(data, handle.producer_id, handle.epoch, sequence, in_transaction=True)
    return (await producer.send(body)).base_offset


def batches_on(cluster: PartitionCluster, broker: ControlledBroker) -> list[Batch]:
    return stored(broker.orders.group.log)


async def newest_seen(broker: ControlledBroker, start: int = 0, *, committed_only: bool = True) -> Newest:
    """The newest record of each key, as a reader of all records knows it in the end."""
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
    await write_in(producer, b"k", b"open")
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


@pytest.mark.parametrize(
    ("policy", "retention_ms", "is_joined"),
    [
        ("compact", 60_000, True),
        ("compact,delete", 60_000, False),  # a joined segment would be as old as its newest record
        ("compact,delete", -1, True),
    ],
)
async def test_segments_that_compaction_has_emptied_are_joined(
    policy: str, retention_ms: int, is_joined: bool
) -> None:
    async with ControlledCluster() as cluster:
        config = {"cleanup.policy": policy, "retention.ms": retention_ms, "segment.bytes": 1024}
        await cluster.create_with("orders", 1, 3, config)
        await write(cluster, 0, 79)
        before = [len(broker.orders.group.log.closed_segments) for broker in cluster]
        assert min(before) > 8
        await cluster.look_for_compaction()
        for broker in cluster:
            assert (len(broker.orders.group.log.closed_segments) <= 2) is is_joined
        leader = (await cluster.leader()).orders
        assert {record.key for record in await read_all(leader)} == {b"%d" % key for key in range(KEYS)}
        await cluster.restart(next(iter(cluster.brokers)))
        await write(cluster, 80, 99)
