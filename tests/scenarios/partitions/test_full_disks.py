"""All disks are full: what frees room uses the reserve, what needs more room is refused."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from broker.process.disk_reserve import LOOK_EVERY_S, DiskReserve
from groups.requests import Commit, DeleteGroup, OffsetCommit, Reply, Request
from groups.state import GroupsState
from partitions.metadata.commands import DecommissionBroker
from partitions.values import QUORUM
from queues.requests import DeleteQueue, Receive, Received, Settle, Token
from raftlog.errors import GroupNotFound, StorageFull
from raftlog.records.control import Archived, Marker, Seal
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster, PartitionCluster
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.transactional import TransactionalProducer
from tests.helpers.virtual_time import eventually

TIMEOUT_MS = 5_000


def fill(cluster: ControlledCluster) -> None:
    for broker in cluster:
        broker.has_room = False


async def ask(cluster: ControlledCluster, request: Request) -> Reply:
    return await cluster.any.groups.service.ask(request, timeout_ms=TIMEOUT_MS, creates=True)


def commit(cluster: ControlledCluster, group: str, offset: int, metadata: str = "") -> Commit:
    topic_id = cluster.any.controller.image.topics["orders"].topic_id
    place = OffsetCommit(topic="orders", topic_id=topic_id, partition=0, offset=offset, metadata=metadata)
    return Commit(group=group, offsets=(place,))


def coordinated(cluster: ControlledCluster) -> GroupsState | None:
    """The groups, at the broker that coordinates them."""
    found = (broker.groups.coordinators[0].coordinated for broker in cluster)
    return next((state for state in found if state is not None), None)


@in_virtual_time_with(PartitionCluster)
async def test_a_topic_is_deleted_and_keeps_less(cluster: PartitionCluster) -> None:
    fill(cluster)
    with pytest.raises(StorageFull):
        await cluster.any.gateway.append(ORDERS, batch_of(b"v"), acks=QUORUM, timeout_ms=TIMEOUT_MS)
    with pytest.raises(StorageFull):
        await cluster.create("more")
    await cluster.configure("orders", {"retention.ms": 1_000})
    await cluster.delete("orders")
    assert "orders" not in cluster.any.controller.image.topics


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_replicas_move_to_a_broker_with_room(cluster: PartitionCluster) -> None:
    for broker in cluster:
        broker.has_room = broker.node_id == 4
    leaving = cluster.replicas[0]
    command = DecommissionBroker(leaving)
    await cluster.any.controller.change_broker(command, TIMEOUT_MS)
    await eventually(
        lambda: set(cluster.any.controller.image.topics["orders"].partitions[0].replicas) == {2, 3, 4},
        within_s=120,
    )


@in_virtual_time_with(PartitionCluster)
async def test_a_group_is_deleted(cluster: PartitionCluster) -> None:
    await ask(cluster, commit(cluster, "g", 0))
    fill(cluster)
    await ask(cluster, DeleteGroup(group="g"))
    with pytest.raises(GroupNotFound):
        await cluster.any.groups.offsets.view("g", timeout_ms=TIMEOUT_MS)


# requirement: A11
@in_virtual_time_with(PartitionCluster)
async def test_groups_go_on_and_no_other_begins(cluster: PartitionCluster) -> None:
    """Retention waits for the groups that a topic names."""
    await cluster.configure("orders", {"retention.consumed.by": "g"})
    await ask(cluster, commit(cluster, "g", 0))
    fill(cluster)
    for offset in (1, 2):
        await ask(cluster, commit(cluster, "g", offset))
    with pytest.raises(StorageFull):
        await ask(cluster, commit(cluster, "another", 0))
    with pytest.raises(StorageFull):
        await ask(cluster, commit(cluster, "g", 0, metadata="x" * 4_000))
    await eventually(lambda: coordinated(cluster) is not None)
    await ask(cluster, commit(cluster, "g", 3))
    view = await cluster.any.groups.offsets.view("g", timeout_ms=TIMEOUT_MS)
    assert [offset.offset for _, _, offset in view.offsets] == [3]


# requirement: A11
@in_virtual_time_with(PartitionCluster)
async def test_a_job_that_is_done_is_acknowledged(cluster: PartitionCluster) -> None:
    for value in (b"first", b"second"):
        await (await cluster.leader()).append(batch_of(value))
    topic_id, lease = cluster.any.controller.image.topics["orders"].topic_id, b"worker-1"
    receive = Receive(
        group="g",
        topic="orders",
        topic_id=topic_id,
        lease=lease,
        count_max=1,
        wait_ms=2_000,
        lease_ms=30_000,
        deliveries_max=3,
    )
    received = await ask(cluster, receive)
    assert isinstance(received, Received)
    assert len(received.jobs) == 1
    fill(cluster)
    await ask(cluster, Settle(group="g", topic="orders", tokens=(Token(0, 0, lease),), how="ack"))
    view = await cluster.any.groups.offsets.view("g", timeout_ms=TIMEOUT_MS)
    assert [offset.offset for _, _, offset in view.offsets] == [1]
    received = await ask(cluster, replace(receive, lease=b"worker-2"))
    assert isinstance(received, Received)
    assert len(received.jobs) == 1, "the next job can be done, too"


RESERVE_BYTES = 1 << 20  # of which a file that is filled ahead takes a quarter at a time
JOBS = 200


def fill_up_to_reserve(cluster: ControlledCluster) -> list[DiskReserve]:
    """Each disk has its reserve left, and no more."""
    fill(cluster)
    reserves: list[DiskReserve] = []
    for broker in cluster:
        disk = broker.filesystem
        assert isinstance(disk, FakeFilesystem)
        disk.capacity_bytes = disk.used_bytes + RESERVE_BYTES
        reserves.append(DiskReserve(disk, broker.directory, RESERVE_BYTES, broker.clock))
    return reserves


# requirement: A11
@in_virtual_time_with(PartitionCluster)
async def test_leases_without_end_leave_half_of_the_reserve_to_deletions(cluster: PartitionCluster) -> None:
    await (await cluster.leader()).append(batch_of(*(b"%d" % number for number in range(JOBS))))
    topic_id, lease = cluster.any.controller.image.topics["orders"].topic_id, b"worker-1"
    receive = Receive(
        group="g",
        topic="orders",
        topic_id=topic_id,
        lease=lease,
        count_max=JOBS,
        wait_ms=2_000,
        lease_ms=600_000,
        deliveries_max=3,
    )
    received = await ask(cluster, receive)
    assert isinstance(received, Received)
    reserves = fill_up_to_reserve(cluster)
    tokens = tuple(Token(0, offset, lease) for offset in range(JOBS))
    extend = Settle(group="g", topic="orders", tokens=tokens, how="extend", time_ms=600_000)
    while all(broker.has_reserve for broker in cluster):
        await ask(cluster, extend)
        await asyncio.sleep(LOOK_EVERY_S)
        for broker, reserve in zip(cluster, reserves, strict=True):
            broker.has_reserve = reserve.has_reserve()
    assert all(reserve.free_bytes > RESERVE_BYTES // 8 for reserve in reserves)
    for request in (extend, receive, commit(cluster, "g", 0)):
        with pytest.raises(StorageFull):
            await ask(cluster, request)
    await ask(cluster, Settle(group="g", topic="orders", tokens=tokens[1:], how="ack"))
    await ask(cluster, DeleteQueue(group="g", topic="orders"))
    await ask(cluster, DeleteGroup(group="g"))
    assert await (await cluster.leader()).orders.delete_before(Offset(1), timeout_ms=TIMEOUT_MS) == 1
    await cluster.delete("orders")
    assert "orders" not in cluster.any.controller.image.topics


# requirement: A11
@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_ends_in_its_groups(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.add_offset("g", 7)
    fill(cluster)
    assert await producer.commit()
    state = coordinated(cluster)
    assert state is not None
    await eventually(lambda: state.offsets["g"]["orders", 0].offset == 7)


@in_virtual_time_with(PartitionCluster)
async def test_a_leader_writes_all_that_lets_retention_go_on(cluster: PartitionCluster) -> None:
    """Retention stops at an open transaction, and at what is not archived."""
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"v")
    orders, handle = (await cluster.leader()).orders, producer.handle
    marker = Marker(handle.producer_id, handle.epoch, is_commit=False, coordinator_epoch=1, log_start=0)
    fill(cluster)
    await orders.mark(marker, timeout_ms=TIMEOUT_MS)
    assert orders.machine.transactions.oldest is None
    assert await orders.set_archived(Archived(1, may_lower=False), timeout_ms=TIMEOUT_MS) == 1
    assert await orders.delete_before(Offset(1), timeout_ms=TIMEOUT_MS) == 1
    orders.want_seal(Seal(is_sealed=True, version=1_000), 1)
    await orders.settle_seal(TIMEOUT_MS)
    assert orders.machine.sealed.newest.is_sealed


@pytest.mark.parametrize("is_commit", [True, False])
@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_ends_and_no_other_begins(cluster: PartitionCluster, is_commit: bool) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    other = await TransactionalProducer(cluster.any, "other").open()
    await producer.write(b"v")
    fill(cluster)
    assert await (producer.commit() if is_commit else producer.abort()) is is_commit
    leader = await cluster.leader()
    assert leader.orders.machine.transactions.oldest is None, "retention goes on"
    with pytest.raises(StorageFull):
        await other.write(b"more")


@in_virtual_time_with(ControlledCluster)
async def test_a_log_is_compacted(cluster: ControlledCluster) -> None:
    await cluster.create("orders", **{"cleanup.policy": "compact", "segment.bytes": 1024})
    leader = await cluster.leader()
    for number in range(30):
        await leader.append(batch_of(b"%d" % number + b"x" * 100, key=b"k"))
    before = leader.orders.group.log.size_bytes
    fill(cluster)
    await cluster.look_for_compaction()
    assert leader.orders.group.log.size_bytes < before / 2
