"""Records below an offset are deleted on request: refused at once, everywhere and for good."""

from __future__ import annotations

import asyncio

import pytest

from partitions.values import QUORUM, AtTime, FetchRequest, LastRecords, Start
from raftlog.errors import (
    CommitUnknown,
    Conflict,
    InvalidRequest,
    NoLeader,
    NotLeader,
    OffsetOutOfRange,
    PartitionNotFound,
    RaftlogError,
)
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import Index, Offset, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster, PartitionCluster
from tests.helpers.orders import ORDERS, batch_of, fetch_from
from tests.helpers.transactional import TransactionalProducer, visible_values
from tests.helpers.virtual_time import eventually

# requirement: RT5

TIMEOUT_MS = 5_000


async def produce(broker: ControlledBroker, *values: bytes) -> None:
    """A batch for each value."""
    for value in values:
        await broker.gateway.append(ORDERS, batch_of(value), acks=QUORUM, timeout_ms=TIMEOUT_MS)


async def delete(broker: ControlledBroker, offset: int) -> int:
    return await broker.gateway.delete_before(ORDERS, Offset(offset), timeout_ms=TIMEOUT_MS)


async def refused(broker: ControlledBroker, offset: int) -> tuple[object, object]:
    """The valid range that a reader of a deleted offset gets."""
    with pytest.raises(OffsetOutOfRange) as error:
        await broker.gateway.fetch(ORDERS, fetch_from(offset))
    return error.value.details["start"], error.value.details["end"]


async def values_from_start(broker: ControlledBroker) -> list[bytes | None]:
    return visible_values(await broker.gateway.fetch(ORDERS, FetchRequest(position=Start.EARLIEST)))


@in_virtual_time_with(PartitionCluster)
async def test_every_broker_refuses_deleted_records_and_keeps_the_others(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    for broker in cluster:
        assert await delete(broker, 2) == 2  # through any broker, and safe to repeat
    for broker in cluster:
        assert await refused(broker, 1) == (2, 5)  # 4 is the log start's own entry
        assert await values_from_start(broker) == [b"c", b"d"]
        newest = await broker.gateway.fetch(ORDERS, FetchRequest(position=LastRecords(100)))
        assert newest.offset == newest.log_start_offset == 2
        assert (await broker.gateway.offset_at(ORDERS, Start.EARLIEST))[0] == 2
    assert [broker.orders.log_start_offset for broker in cluster] == [2, 2, 2]


@in_virtual_time_with(PartitionCluster)
async def test_a_lower_offset_changes_nothing_and_returns_the_start(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    assert await delete(cluster.any, 2) == 2
    leader = await cluster.leader()
    last = leader.orders.group.last_index
    assert await delete(cluster.any, 1) == 2
    assert await delete(cluster.any, 0) == 2
    assert leader.orders.group.last_index == last


@in_virtual_time_with(PartitionCluster)
async def test_the_whole_log_may_be_deleted_and_not_more(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    with pytest.raises(InvalidRequest, match="ends at 3; send at most 3") as error:
        await delete(cluster.any, 4)
    assert error.value.details["field"] == "offset"
    assert await values_from_start(cluster.any) == [b"a", b"b", b"c"]
    assert await delete(cluster.any, 3) == 3
    assert await values_from_start(cluster.any) == []
    await produce(cluster.any, b"d")
    assert await values_from_start(cluster.any) == [b"d"]


@in_virtual_time_with(PartitionCluster)
async def test_a_reader_at_the_end_waits_on(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b")
    waiting = asyncio.ensure_future(cluster.any.gateway.fetch(ORDERS, fetch_from(2, wait_ms=20_000)))
    await asyncio.sleep(0.1)
    assert await delete(cluster.any, 2) == 2
    await produce(cluster.any, b"c")
    found = await waiting  # it was woken by the entry of the log start
    assert (visible_values(found), found.next_offset) == ([], 3)
    assert visible_values(await cluster.any.gateway.fetch(ORDERS, fetch_from(3))) == [b"c"]


# requirement: RT4
@in_virtual_time_with(PartitionCluster)
async def test_the_next_leader_refuses_deleted_records_before_it_is_ready(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    leader = await cluster.leader()
    others = cluster.followers(leader)
    assert await leader.orders.delete_before(Offset(2), timeout_ms=TIMEOUT_MS) == 2
    cluster.network.isolate(leader.node_id)  # before it tells that the entry is committed
    assert all(broker.orders.machine.log_start.offset == 0 for broker in others)
    async with asyncio.timeout(30):
        while not any(broker.orders.group.is_leader for broker in others):
            await asyncio.sleep(0.0001)  # a leader is ready about a millisecond later
    heir = next(broker for broker in others if broker.orders.group.is_leader)
    with pytest.raises(OffsetOutOfRange):
        await heir.orders.fetch(FetchRequest(position=Offset(1)))
    found = await heir.orders.fetch(FetchRequest(position=Start.EARLIEST))
    assert found.log_start_offset == 2
    cluster.network.heal_all()


@in_virtual_time_with(PartitionCluster)
async def test_a_deposed_leader_acknowledges_no_deletion(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    deposed = await cluster.leader()
    cluster.network.isolate(deposed.node_id)
    asked = (deposed.orders.delete_before(Offset(offset), timeout_ms=TIMEOUT_MS) for offset in (2, 0))
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(answer, NotLeader | NoLeader | CommitUnknown), answer
    heir = await cluster.leader(other_than=deposed.node_id)
    assert heir.orders.log_start_offset == 0
    assert await heir.orders.delete_before(Offset(1), timeout_ms=TIMEOUT_MS) == 1
    cluster.network.heal_all()
    await eventually(lambda: deposed.orders.machine.log_start.offset == 1)
    assert await delete(deposed, 0) == 1


@in_virtual_time_with(PartitionCluster)
async def test_an_unknown_deletion_may_be_repeated(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    leader = await cluster.leader()
    task = asyncio.ensure_future(leader.orders.delete_before(Offset(2), timeout_ms=TIMEOUT_MS))
    while leader.orders.group.last_index < 3:
        await asyncio.sleep(0)
    cluster.network.isolate(leader.node_id)
    try:
        start = await task
    except CommitUnknown:
        start = 0
    cluster.network.heal_all()
    again = await cluster.leader()
    assert again.orders.log_start_offset >= start
    assert await delete(again, 2) == 2


async def in_segments(cluster: ControlledCluster, records: int) -> ControlledBroker:
    """The leader of ``orders`` with a segment for each record."""
    await cluster.create("orders", segment_ms=50)
    leader = await cluster.leader()
    for number in range(records):
        await produce(leader, b"%d" % number)
        await asyncio.sleep(0.06)  # an age
    return leader


@in_virtual_time_with(ControlledCluster)
async def test_the_next_check_of_retention_frees_segments_everywhere(cluster: ControlledCluster) -> None:
    leader = await in_segments(cluster, 6)
    before = [broker.orders.group.log.size_bytes for broker in cluster]
    assert await delete(leader, 4) == 4
    await eventually(lambda: all(broker.orders.machine.log_start.offset == 4 for broker in cluster))
    await cluster.look_for_retention()
    assert [broker.orders.group.log.first_index for broker in cluster] == [4, 4, 4]
    sizes = [broker.orders.group.log.size_bytes for broker in cluster]
    assert all(after < size for after, size in zip(sizes, before, strict=True))


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_replica_with_a_snapshot_from_before_a_deletion_knows_it(cluster: ControlledCluster) -> None:
    leader = await in_segments(cluster, 3)
    away = next(node for node in cluster.nodes if node != leader.node_id)
    await cluster.stop(away)
    for number in range(3, 6):
        await produce(leader, b"%d" % number)
        await asyncio.sleep(0.06)  # an age
    assert await delete(leader, 5) == 5
    await cluster.look_for_retention()
    assert leader.orders.group.log.first_index == 5
    back = await cluster.start(away)
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    await eventually(lambda: back.orders.group.durable_index == leader.orders.group.durable_index)
    await cluster.lead(away)
    assert await refused(back, 4) == (5, back.orders.high_watermark)
    assert await values_from_start(back) == [b"5"]


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_what_an_open_transaction_has_written_is_not_deleted(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b")
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"open")
    await produce(cluster.any, b"c")
    with pytest.raises(Conflict, match="open in orders/0 from 2 on; send at most 2"):
        await delete(cluster.any, 3)
    assert await delete(cluster.any, 2) == 2
    assert await producer.commit()
    found = await cluster.any.gateway.fetch(ORDERS, fetch_from(2, committed_only=True))
    assert visible_values(found) == [b"open", b"c"]
    assert await delete(cluster.any, 3) == 3


@in_virtual_time_with(lambda: PartitionCluster(config={"cleanup.policy": "compact"}))
async def test_compacted_topics_are_refused_unless_they_also_delete(cluster: PartitionCluster) -> None:
    await cluster.any.gateway.append(ORDERS, batch_of(b"a", key=b"k"), acks=QUORUM, timeout_ms=TIMEOUT_MS)
    with pytest.raises(InvalidRequest, match="is compacted") as error:
        await delete(cluster.any, 1)
    assert error.value.details["field"] == "topic"
    await cluster.configure("orders", {"cleanup.policy": "compact,delete"})
    assert await delete(cluster.any, 1) == 1


@in_virtual_time_with(PartitionCluster)
async def test_internal_topics_and_missing_partitions_are_refused(cluster: PartitionCluster) -> None:
    await TransactionalProducer(cluster.any).open()
    with pytest.raises(InvalidRequest, match="is internal"):
        await cluster.any.gateway.delete_before(
            TopicPartition("__transactions", 0), Offset(1), timeout_ms=TIMEOUT_MS
        )
    with pytest.raises(PartitionNotFound):
        await cluster.any.gateway.delete_before(TopicPartition("orders", 7), Offset(1), timeout_ms=1000)


@in_virtual_time_with(PartitionCluster)
async def test_records_can_be_deleted_when_the_disk_has_no_room(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b")
    for broker in cluster:
        broker.has_room = False
    with pytest.raises(RaftlogError):
        await produce(cluster.any, b"c")
    assert await delete(cluster.any, 1) == 1


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_deletion_replicates_a_start_of_the_leaders_log(cluster: ControlledCluster) -> None:
    """Earlier versions cut logs without an entry: another replica may begin earlier."""
    leader = await in_segments(cluster, 5)
    assert await leader.orders.group.truncate_prefix(Index(3)) == 3
    assert await delete(leader, 2) == 3
    await cluster.stop(leader.node_id)
    heir = await cluster.leader()
    assert heir.orders.group.log.first_index == 0
    assert (await refused(heir, 2))[0] == 3


# requirement: K6
async def test_segments_are_freed_also_if_the_topic_is_only_compacted_after_the_deletion() -> None:
    config: dict[str, int | str] = {"segment.ms": 50, "retention.ms": -1, "cleanup.policy": "compact,delete"}
    async with PartitionCluster(config=config) as cluster:
        for number in range(3):
            body = batch_of(b"%d" % number, key=b"%d" % number)
            await cluster.any.gateway.append(ORDERS, body, acks=QUORUM, timeout_ms=TIMEOUT_MS)
            await asyncio.sleep(0.06)  # an age
        assert await delete(cluster.any, 2) == 2
        changed = await cluster.any.controller.alter_config(
            "orders", {"cleanup.policy": "compact"}, expected_version=None, timeout_ms=TIMEOUT_MS
        )
        await cluster.settled(changed.version)
        await cluster.look_for_retention()
        await cluster.look_for_retention()
        assert [broker.orders.group.log.first_index for broker in cluster] == [2, 2, 2]
        assert await values_from_start(cluster.any) == [b"2"]


@in_virtual_time_with(lambda: PartitionCluster(config={"message.timestamp.type": "CreateTime"}))
async def test_a_time_is_found_among_the_records_that_are_left(cluster: PartitionCluster) -> None:
    """The batch that holds the new log start reaches the time only by a deleted record."""
    leader = await cluster.leader()
    for timestamps in ((5_000,), (9_000, 1_000), (2_000,), (8_000,)):
        records = [Record(b"v", timestamp_ms=timestamp_ms) for timestamp_ms in timestamps]
        await leader.append(build_batch(records, codec=Codec.NONE, timestamp_ms=0))
    at_7000 = AtTime(7_000)
    assert await leader.gateway.offset_at(ORDERS, at_7000) == (1, 9_000)
    await delete(leader, 2)
    for broker in cluster:
        assert await broker.gateway.offset_at(ORDERS, at_7000) == (4, 8_000)
        assert (await broker.gateway.fetch(ORDERS, FetchRequest(position=at_7000))).offset == 4
