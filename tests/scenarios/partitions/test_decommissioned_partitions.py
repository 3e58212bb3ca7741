"""Decommissioned partitions: refused for good, read to the end, removed after retention, added again."""

from __future__ import annotations

import asyncio

import pytest

from partitions.metadata.move_planner import MoveReplicas
from partitions.replica.replica import PartitionReplica
from partitions.values import QUORUM, Acks, AcksKind, AppendReceipt, FetchRequest, Start
from raftlog.errors import (
    CommitUnknown,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionDecommissioned,
    PartitionNotFound,
    PreconditionFailed,
)
from raftlog.records.control import Seal
from raftlog.types import Offset, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PRODUCER, ControlledBroker, ControlledCluster
from tests.helpers.orders import batch_of
from tests.helpers.transactional import visible_values
from tests.helpers.virtual_time import eventually

# requirement: F5

LAST = TopicPartition("orders", 1)
MS = 5_000


async def topic(cluster: ControlledCluster, **config: int | str) -> None:
    """Two partitions."""
    await cluster.create("orders", 2, **config)
    await cluster.any.controller.allocate_producer_ids(10, MS)


async def decommission(cluster: ControlledCluster, *, is_ended: bool = False) -> int:
    changed = await cluster.any.controller.decommission_partitions(
        "orders", partitions=(1,), is_ended=is_ended, timeout_ms=MS
    )
    await cluster.settled(changed.version)
    return changed.version


async def produce(cluster: ControlledCluster, value: bytes, acks: Acks = QUORUM) -> AppendReceipt:
    return await cluster.any.gateway.append(LAST, batch_of(value), acks=acks, timeout_ms=MS)


def numbered(sequence: int, value: bytes = b"x", epoch: int = 0) -> bytes:
    return batch_of(value, producer=PRODUCER, epoch=epoch, sequence=sequence)


def held(broker: ControlledBroker) -> PartitionReplica:
    return broker.manager.replicas["orders", 1]


async def values(cluster: ControlledCluster) -> list[bytes | None]:
    """All records of the last partition."""
    return visible_values(await cluster.any.gateway.fetch(LAST, FetchRequest(position=Start.EARLIEST)))


def count(cluster: ControlledCluster) -> set[int]:
    """How many partitions the brokers know of."""
    return {len(broker.controller.image.topics["orders"].partitions) for broker in cluster}


async def until_removed(cluster: ControlledCluster, left: int = 1) -> None:
    async with asyncio.timeout(60):
        while count(cluster) != {left}:
            await cluster.look_for_retention()
            await asyncio.sleep(0.2)


@in_virtual_time_with(ControlledCluster)
async def test_producers_are_refused_for_good_and_readers_read_on(cluster: ControlledCluster) -> None:
    await topic(cluster)
    await produce(cluster, b"before")
    await decommission(cluster)
    for acks in (QUORUM, Acks(AcksKind.LEADER), Acks(AcksKind.NONE)):
        with pytest.raises(PartitionDecommissioned) as refused:
            await produce(cluster, b"after", acks)
        assert refused.value.is_definite
        assert not refused.value.retryable
        assert refused.value.details["partitions"] == 1
        assert "send to one of 0 to 0, or name no partition" in str(refused.value)
    assert await values(cluster) == [b"before"]
    await cluster.any.gateway.append(TopicPartition("orders", 0), batch_of(b"x"), acks=QUORUM, timeout_ms=MS)


@in_virtual_time_with(ControlledCluster)
async def test_no_later_leader_takes_a_record_whatever_metadata_it_has(cluster: ControlledCluster) -> None:
    await topic(cluster)
    await produce(cluster, b"before")
    first = await cluster.leader(partition=1)
    old = {broker.node_id: held(broker) for broker in cluster}
    await decommission(cluster)
    with pytest.raises(PartitionDecommissioned):
        await produce(cluster, b"after")
    await cluster.stop(first.node_id)
    second = await cluster.leader(partition=1)
    replica = old[second.node_id]
    replica.want_seal(replica.machine.sealed.newest._replace(is_sealed=False, version=0), 2)
    assert not replica.must_settle_seal, "older metadata than that of the seal changes nothing"
    with pytest.raises(PartitionDecommissioned):
        await replica.append(batch_of(b"after"), acks=QUORUM, timeout_ms=MS)
    assert await values(cluster) == [b"before"]


@in_virtual_time_with(ControlledCluster)
async def test_a_leader_that_is_not_ready_appends_nothing_behind_a_seal(cluster: ControlledCluster) -> None:
    await topic(cluster)
    await produce(cluster, b"before")
    first = await cluster.leader(partition=1)
    replica = held(first)
    await decommission(cluster)
    with pytest.raises(PartitionDecommissioned):
        await produce(cluster, b"after")
    for broker in cluster:  # as a broker with old metadata that has just opened its log
        held(broker).want_seal(replica.machine.sealed.newest._replace(is_sealed=False, version=0), 2)
    await cluster.stop(first.node_id)
    for broker in cluster:
        attempts = [asyncio.create_task(held(broker).append(batch_of(b"after"), acks=QUORUM, timeout_ms=MS))]
        await asyncio.gather(*attempts, return_exceptions=True)
    await cluster.leader(partition=1)
    assert await values(cluster) == [b"before"]


@in_virtual_time_with(ControlledCluster)
async def test_a_decommissioned_partition_recognises_duplicates(cluster: ControlledCluster) -> None:
    await topic(cluster)
    gateway = cluster.any.gateway
    stored = await gateway.append(LAST, numbered(0), acks=QUORUM, timeout_ms=MS)
    await decommission(cluster)
    again = await gateway.append(LAST, numbered(0), acks=QUORUM, timeout_ms=MS)
    assert again.was_duplicate
    assert again.base_offset == stored.base_offset
    with pytest.raises(PartitionDecommissioned):
        await gateway.append(LAST, numbered(1), acks=QUORUM, timeout_ms=MS)
    with pytest.raises((PartitionDecommissioned, OutOfOrderSequence)):
        await gateway.append(LAST, numbered(2), acks=QUORUM, timeout_ms=MS)
    with pytest.raises(CommitUnknown, match="the first batches are stored"):
        await gateway.append(LAST, numbered(0) + numbered(1), acks=QUORUM, timeout_ms=MS)
    assert await values(cluster) == [b"x"]


@in_virtual_time_with(ControlledCluster)
async def test_recommissioned_partitions_keep_records_and_take_more(cluster: ControlledCluster) -> None:
    await topic(cluster)
    await produce(cluster, b"before")
    await decommission(cluster)
    with pytest.raises(PartitionDecommissioned):
        await produce(cluster, b"refused")
    version = await decommission(cluster, is_ended=True)
    await cluster.settled(version)
    await produce(cluster, b"after")
    assert await values(cluster) == [b"before", b"after"]


@in_virtual_time_with(ControlledCluster)
async def test_a_seal_that_is_taken_back_while_it_is_written_refuses_nobody(
    cluster: ControlledCluster,
) -> None:
    await topic(cluster)
    await produce(cluster, b"before")
    leader = await cluster.leader(partition=1)
    replica, others = held(leader), [broker for broker in cluster if broker is not leader]
    for broker in others:
        broker.disk.clear()
    replica.want_seal(Seal(is_sealed=True, version=1_000), 1)
    settling = asyncio.create_task(replica.settle_seal(MS))
    await eventually(lambda: replica.group.last_index == 1)
    replica.want_seal(Seal(is_sealed=False, version=1_001), 2)
    appending = asyncio.create_task(replica.append(batch_of(b"after"), acks=QUORUM, timeout_ms=MS))
    await asyncio.sleep(0.05)
    assert not appending.done()
    for broker in others:
        broker.disk.set()
    await asyncio.gather(settling, appending)
    assert await values(cluster) == [b"before", b"after"]


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_no_record_follows_a_seal_in_the_log(cluster: ControlledCluster) -> None:
    """Else a partition that is decommissioned again counts as empty while a record is on its way."""
    await topic(cluster)
    await produce(cluster, b"before")
    await decommission(cluster)
    await eventually(lambda: any(held(broker).machine.sealed.newest.is_sealed for broker in cluster))
    await cluster.settled(await decommission(cluster, is_ended=True))
    await produce(cluster, b"after")
    leader = next(broker for broker in cluster if held(broker).group.is_leader)
    assert not held(leader).machine.sealed.newest.is_sealed


# requirement: A3
@in_virtual_time_with(ControlledCluster)
async def test_a_partition_stays_while_the_outcome_of_an_append_to_it_is_awaited(
    cluster: ControlledCluster,
) -> None:
    await topic(cluster)
    for broker in cluster:
        broker.is_awaited = True
    await decommission(cluster)
    await asyncio.sleep(10)
    assert count(cluster) == {2}, "its log alone knows whether the batch was stored"
    for broker in cluster:
        broker.is_awaited = False
    await until_removed(cluster)


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_a_partition_is_removed_once_its_retention_has_passed(cluster: ControlledCluster) -> None:
    await topic(cluster, retention_ms=8_000)
    await produce(cluster, b"kept")
    directories = {
        broker.node_id: broker.manager.directory_of(held(broker).group.group_id) for broker in cluster
    }
    await decommission(cluster)
    for _ in range(6):
        await asyncio.sleep(1)
        await cluster.look_for_retention()
    assert count(cluster) == {2}
    assert await values(cluster) == [b"kept"]
    await until_removed(cluster)
    await cluster.settled(cluster.any.controller.image.version)
    for broker in cluster:
        assert ("orders", 1) not in broker.manager.replicas
        directory = directories[broker.node_id]
        assert directory is not None
        assert not cluster.disks[broker.node_id].list_directory(directory)
    with pytest.raises(PartitionNotFound):
        await produce(cluster, b"late")


@in_virtual_time_with(ControlledCluster)
async def test_an_empty_partition_is_removed_at_once(cluster: ControlledCluster) -> None:
    await topic(cluster)
    await decommission(cluster)
    async with asyncio.timeout(10):
        while count(cluster) != {1}:
            await asyncio.sleep(0.2)


# requirement: RT5
@in_virtual_time_with(ControlledCluster)
async def test_records_that_are_kept_for_ever_hold_a_partition(cluster: ControlledCluster) -> None:
    await topic(cluster, retention_ms=-1)
    await produce(cluster, b"kept")
    await decommission(cluster)
    for _ in range(5):
        await asyncio.sleep(1)
        await cluster.look_for_retention()
    assert count(cluster) == {2}
    end, _ = await cluster.any.gateway.offset_at(LAST, Start.LATEST)
    await cluster.any.gateway.delete_before(LAST, end, timeout_ms=MS)
    await until_removed(cluster)


@in_virtual_time_with(ControlledCluster)
async def test_a_compacted_partition_is_never_removed_by_itself(cluster: ControlledCluster) -> None:
    await topic(cluster, cleanup_policy="compact", retention_ms=1_000)
    keyed = batch_of(b"x", key=b"k")
    await cluster.any.gateway.append(LAST, keyed, acks=QUORUM, timeout_ms=MS)
    await decommission(cluster)
    for _ in range(5):
        await asyncio.sleep(1)
        await cluster.look_for_retention()
    assert count(cluster) == {2}
    assert await values(cluster) == [b"x"]


# requirement: F4, T5
@in_virtual_time_with(ControlledCluster)
async def test_a_partition_that_is_added_again_continues_the_offsets(cluster: ControlledCluster) -> None:
    await topic(cluster, retention_ms=5_000)
    old = await produce(cluster, b"old")
    await decommission(cluster)
    await until_removed(cluster)
    added = await cluster.any.controller.add_partitions(
        "orders", 1, expected=1, expected_version=None, timeout_ms=MS
    )
    await cluster.settled(added.version)
    new = await produce(cluster, b"new")
    assert new.base_offset == added.partitions[1].first_offset > old.base_offset
    assert await values(cluster) == [b"new"]
    with pytest.raises(OffsetOutOfRange) as below:
        await cluster.any.gateway.fetch(LAST, FetchRequest(position=Offset(old.base_offset)))
    assert below.value.details["start"] == new.base_offset
    for node in cluster.nodes:
        await cluster.restart(node)
    await cluster.leader(partition=1)
    assert await values(cluster) == [b"new"]
    assert (await produce(cluster, b"newer")).base_offset > new.base_offset


# requirement: F4
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_broker_that_was_away_restores_no_removed_partition(cluster: ControlledCluster) -> None:
    await topic(cluster, retention_ms=5_000)
    await produce(cluster, b"old")
    replicas = cluster.any.controller.image.topics["orders"].partitions[1].replicas
    leading = (await cluster.leader(partition=1)).node_id
    away = next(node for node in reversed(replicas) if node != leading)
    await eventually(lambda: held(cluster.brokers[away]).group.commit_index >= 0)
    await cluster.stop(away)
    await decommission(cluster)
    await until_removed(cluster)
    await cluster.any.controller.add_partitions("orders", 1, expected=1, expected_version=None, timeout_ms=MS)
    await eventually(lambda: all(("orders", 1) in broker.manager.replicas for broker in cluster))
    new = await produce(cluster, b"new")
    back = await cluster.start(away)
    await cluster.registered()
    others = [broker.node_id for broker in cluster if broker is not back]
    move = MoveReplicas("orders", 1, (away, *others[:2]))
    await cluster.any.controller.change_replicas(move, MS)
    await eventually(lambda: ("orders", 1) in back.manager.replicas)
    await eventually(lambda: held(back).group.commit_index >= new.base_offset, within_s=60)
    assert (
        held(back).group.log.first_index >= back.controller.image.topics["orders"].partitions[1].first_offset
    )
    assert await values(cluster) == [b"new"]


@in_virtual_time_with(ControlledCluster)
async def test_a_recommission_before_the_removal_keeps_the_partition(cluster: ControlledCluster) -> None:
    await topic(cluster)
    broker = await cluster.leader(partition=1)
    replica = held(broker)
    await produce(cluster, b"deleted")
    await replica.delete_before(Offset(1), timeout_ms=MS)
    await decommission(cluster)
    await replica.settle_seal(MS)
    assert await replica.spent_at() == (replica.high_watermark, 1)
    version = await decommission(cluster, is_ended=True)
    await cluster.settled(version)
    await asyncio.sleep(10)
    assert count(cluster) == {2}
    await produce(cluster, b"after")
    assert await replica.spent_at() is None
    with pytest.raises(PreconditionFailed):
        await cluster.any.controller.decommission_partitions(
            "orders", partitions=(1,), expected=1, timeout_ms=MS
        )
