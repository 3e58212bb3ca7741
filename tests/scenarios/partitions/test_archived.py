"""Retention waits for the archive: nothing that is not archived is deleted, whoever leads."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from partitions.values import QUORUM
from raftlog.errors import CommitUnknown, Conflict, InvalidRequest, NoLeader, NotLeader, RaftlogError
from raftlog.records.control import Archived
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.state_files import CHECKPOINT_NAME
from raftlog.types import Offset, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster, PartitionCluster
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.transactional import TransactionalProducer
from tests.helpers.virtual_time import eventually

# requirement: A8

TIMEOUT_MS = 5_000
AGE_S = 0.06  # longer than ``segment.ms``
REQUIRED: dict[str, int | str] = {
    "segment.ms": 50,
    "retention.ms": 1,
    "retention.archive.required": "true",
}


async def produce(broker: ControlledBroker, *values: bytes) -> None:
    """A batch, and with ``segment.ms`` a segment, for each value."""
    for value in values:
        await broker.gateway.append(ORDERS, batch_of(value), acks=QUORUM, timeout_ms=TIMEOUT_MS)
        await asyncio.sleep(AGE_S)


async def archive(broker: ControlledBroker, offset: int, *, may_lower: bool = False) -> int:
    wanted = Archived(offset, may_lower)
    return await broker.gateway.set_archived(ORDERS, wanted, timeout_ms=TIMEOUT_MS)


async def look(cluster: ControlledCluster) -> None:
    for _ in range(3):  # a member that is behind is waited for, and a new start is committed
        await cluster.look_for_retention()
        await asyncio.sleep(0.5)


async def status(cluster: ControlledCluster) -> tuple[int, int, int]:
    """The log start, the archived offset and the bytes that wait, as any broker is told."""
    (found,) = await cluster.any.gateway.describe("orders")
    return found.log_start_offset, found.archived_up_to, found.awaiting_archive_bytes


@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_what_is_not_archived_stays_however_old_it_is(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    await look(cluster)
    start, archived, waiting = await status(cluster)
    assert (start, archived) == (0, 0)
    assert waiting > 0
    assert await archive(cluster.any, 2) == 2
    await look(cluster)
    start, archived, _ = await status(cluster)
    assert (start, archived) == (2, 2)
    for broker in cluster:
        assert broker.orders.group.log.first_index == 2


@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_nothing_waits_once_all_that_is_old_is_archived(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    await look(cluster)
    assert await archive(cluster.any, 4) == 4
    await look(cluster)
    assert await status(cluster) == (3, 4, 0)  # the newest record stays


# requirement: RT3
async def test_the_size_limit_waits_too() -> None:
    config = {**REQUIRED, "retention.ms": -1, "retention.bytes": 0}
    async with PartitionCluster(config=config) as cluster:
        await produce(cluster.any, b"a", b"b", b"c")
        await look(cluster)
        assert (await status(cluster))[0] == 0
        await archive(cluster.any, 1)
        await look(cluster)
        assert (await status(cluster))[0] == 1


# requirement: RT2
@in_virtual_time_with(lambda: PartitionCluster(config={"segment.ms": 50, "retention.ms": 1}))
async def test_other_topics_do_not_wait(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    await archive(cluster.any, 1)
    await look(cluster)
    assert await status(cluster) == (3, 1, 0)


@in_virtual_time_with(PartitionCluster)
async def test_the_offset_goes_back_only_on_request(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    assert await archive(cluster.any, 3) == 3
    last = (await cluster.leader()).orders.group.last_index
    assert await archive(cluster.any, 2) == 3
    assert await archive(cluster.any, 3, may_lower=True) == 3
    assert (await cluster.leader()).orders.group.last_index == last, "nothing changes, nothing is written"
    assert await archive(cluster.any, 1, may_lower=True) == 1
    assert await archive(cluster.any, 2) == 2


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_records_that_are_not_stable_are_not_archived(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a")
    with pytest.raises(InvalidRequest, match="end at 1; send at most 1") as error:
        await archive(cluster.any, 2)
    assert error.value.details["field"] == "offset"
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"open")
    with pytest.raises(InvalidRequest, match="send at most 1"):
        await archive(cluster.any, 2)
    assert await producer.commit()
    assert await archive(cluster.any, 2) == 2


# requirement: RT5
@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_records_that_are_not_archived_are_not_deleted_on_request(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    await archive(cluster.any, 1)
    with pytest.raises(Conflict, match="archived up to 1; send at most 1"):
        await cluster.any.gateway.delete_before(ORDERS, Offset(2), timeout_ms=TIMEOUT_MS)
    assert await cluster.any.gateway.delete_before(ORDERS, Offset(1), timeout_ms=TIMEOUT_MS) == 1


@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_the_next_leader_knows_what_is_archived_and_keeps_the_rest(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    leader = await cluster.leader()
    assert await leader.orders.set_archived(Archived(2), timeout_ms=TIMEOUT_MS) == 2
    cluster.network.isolate(leader.node_id)  # before it tells that the entry is committed
    assert all(broker.orders.machine.archived.offset == 0 for broker in cluster.followers(leader))
    heir = await cluster.leader(other_than=leader.node_id)
    async with asyncio.timeout(30):
        while not heir.orders.group.is_ready:
            await asyncio.sleep(0.01)
    assert heir.orders.machine.archived.offset == 2
    await heir.retention.look()
    assert heir.orders.log_start_offset == 2
    cluster.network.heal_all()


@in_virtual_time_with(PartitionCluster)
async def test_a_deposed_leader_acknowledges_nothing(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c")
    deposed = await cluster.leader()
    cluster.network.isolate(deposed.node_id)
    asked = (deposed.orders.set_archived(Archived(offset), timeout_ms=TIMEOUT_MS) for offset in (2, 0))
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(answer, NotLeader | NoLeader | CommitUnknown), answer
    heir = await cluster.leader(other_than=deposed.node_id)
    assert await heir.orders.set_archived(Archived(1), timeout_ms=TIMEOUT_MS) == 1
    cluster.network.heal_all()
    await eventually(lambda: deposed.orders.machine.archived.offset == 1)


@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_the_archived_offset_survives_a_restart_from_older_states(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b", b"c", b"d")
    assert await archive(cluster.any, 2) == 2
    for node in cluster.nodes:
        log = cast("SegmentedLog", cluster.brokers[node].orders.group.log)
        await cluster.stop(node)
        cluster.disks[node].remove(f"{log.directory}/{CHECKPOINT_NAME}")
    for node in cluster.nodes:
        await cluster.start(node)
    again = await cluster.leader()
    await eventually(lambda: again.orders.machine.archived.offset == 2)
    await look(cluster)
    assert (await status(cluster))[:2] == (2, 2)


@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_a_replica_that_gets_a_snapshot_knows_what_is_archived(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b")
    leader = await cluster.leader()
    away = next(node for node in cluster.nodes if node != leader.node_id)
    await cluster.stop(away)
    await produce(leader, b"c", b"d", b"e")
    assert await archive(leader, 4) == 4
    await produce(leader, b"f", b"g")
    assert await archive(leader, 6) == 6
    await look(cluster)
    assert leader.orders.group.log.first_index >= 4
    back = await cluster.start(away)
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    await eventually(lambda: back.orders.group.applied_index == leader.orders.group.applied_index)
    assert back.orders.machine.archived.offset == 6
    await cluster.lead(away)
    await back.retention.look()
    assert back.orders.machine.archived.offset == 6


@in_virtual_time_with(lambda: PartitionCluster(config=REQUIRED))
async def test_the_archive_is_reported_when_the_disk_has_no_room(cluster: PartitionCluster) -> None:
    await produce(cluster.any, b"a", b"b")
    for broker in cluster:
        broker.has_room = False
    with pytest.raises(RaftlogError):
        await produce(cluster.any, b"c")
    assert await archive(cluster.any, 1) == 1
    await look(cluster)
    assert (await status(cluster))[0] == 1


@in_virtual_time_with(PartitionCluster)
async def test_internal_topics_have_no_archive(cluster: PartitionCluster) -> None:
    await TransactionalProducer(cluster.any).open()
    with pytest.raises(InvalidRequest, match="is internal"):
        await cluster.any.gateway.set_archived(
            TopicPartition("__transactions", 0), Archived(1), timeout_ms=TIMEOUT_MS
        )
