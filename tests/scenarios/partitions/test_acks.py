"""Acknowledgements: which disks have a record by then, what an error says, and how partitions add up."""

from __future__ import annotations

import asyncio

import pytest

from partitions.values import QUORUM, Acks
from raftlog.core.membership import Membership
from raftlog.errors import CommitUnknown, InvalidRequest
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PRODUCER, ControlledCluster, PartitionCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually


@in_virtual_time_with(PartitionCluster)
async def test_quorum_waits_for_a_majority_and_for_no_more(cluster: PartitionCluster) -> None:
    # requirement: RP5, P5
    leader = await cluster.leader()
    slow, fast = cluster.followers(leader)
    slow.disk.clear()
    durability = (await leader.append(batch_of(b"a"))).durability
    assert (durability.committed, durability.fsynced, durability.replicas) == (True, True, 2)
    fast.disk.clear()
    waiting = asyncio.create_task(leader.append(batch_of(b"a"), acks=Acks.parse("all")))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    fast.disk.set()
    assert (await waiting).durability.acks == "quorum"


@in_virtual_time_with(PartitionCluster)
async def test_a_quorum_does_not_need_the_leaders_disk_but_a_count_does(cluster: PartitionCluster) -> None:
    # requirement: RP5, RP8
    leader = await cluster.leader()
    leader.disk.clear()
    assert (await leader.append(batch_of(b"a"))).durability.replicas == 2
    counting = asyncio.create_task(leader.append(batch_of(b"a"), acks=Acks.parse("2")))
    await asyncio.sleep(0.02)
    assert not counting.done()
    leader.disk.set()
    await counting


@in_virtual_time_with(PartitionCluster)
async def test_acks_of_the_leader_need_its_disk_and_are_not_committed(cluster: PartitionCluster) -> None:
    # requirement: RP6
    leader = await cluster.leader()
    for follower in cluster.followers(leader):
        follower.disk.clear()
    durability = (await leader.append(batch_of(b"a"), acks=Acks.parse("1"))).durability
    assert (durability.committed, durability.fsynced, durability.replicas) == (False, True, 1)
    leader.disk.clear()
    with pytest.raises(CommitUnknown):
        await leader.append(batch_of(b"a"), acks=Acks.parse("1"), timeout_ms=20)


@in_virtual_time_with(PartitionCluster)
async def test_none_waits_for_nothing(cluster: PartitionCluster) -> None:
    # requirement: RP7
    leader = await cluster.leader()
    for broker in cluster.brokers.values():
        broker.disk.clear()
    durability = (await leader.append(batch_of(b"a"), acks=Acks.parse("0"))).durability
    assert (durability.committed, durability.fsynced, durability.replicas) == (False, False, 0)


@in_virtual_time_with(PartitionCluster)
async def test_a_count_with_a_dead_follower_is_committed_and_unknown(cluster: PartitionCluster) -> None:
    # requirement: RP8
    leader = await cluster.leader()
    cluster.network.isolate(cluster.followers(leader)[0].node_id)
    with pytest.raises(CommitUnknown, match="are committed") as unknown:
        await leader.append(batch_of(b"a"), acks=Acks.parse("3"), timeout_ms=60)
    assert unknown.value.details["committed"] is True
    cluster.network.heal_all()
    assert (await leader.append(batch_of(b"a"), acks=Acks.parse("3"))).durability.replicas == 3


@in_virtual_time_with(lambda: PartitionCluster(config={"replica.lag.max.ms": 80}))
async def test_every_waits_for_replicas_in_sync_until_they_are_out_of_sync(cluster: PartitionCluster) -> None:
    # requirement: RP5
    leader = await cluster.leader()
    dead = cluster.followers(leader)[0]
    cluster.network.isolate(dead.node_id)
    began = asyncio.get_running_loop().time()
    receipt = await leader.append(batch_of(b"a"), acks=Acks.parse("every"))
    assert asyncio.get_running_loop().time() - began > 0.03
    assert dead.node_id not in leader.orders.in_sync()
    assert receipt.durability.replicas == 2


@in_virtual_time_with(PartitionCluster)
async def test_more_replicas_than_there_are_is_refused_with_the_reason(cluster: PartitionCluster) -> None:
    # requirement: RP8
    leader = await cluster.leader()
    with pytest.raises(InvalidRequest, match="3 replicas"):
        await leader.append(batch_of(b"a"), acks=Acks.parse("4"))
    assert leader.orders.group.last_index == -1


@in_virtual_time_with(PartitionCluster)
async def test_a_time_out_is_no_failure_and_the_proposal_goes_on(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    for follower in cluster.followers(leader):
        follower.disk.clear()
    body = batch_of(b"a", producer=PRODUCER, sequence=0)
    with pytest.raises(CommitUnknown) as unknown:
        await leader.append(body, timeout_ms=20)
    assert not unknown.value.is_definite
    assert unknown.value.details["committed"] is None
    for follower in cluster.followers(leader):
        follower.disk.set()
    receipt = await leader.append(body)
    assert (receipt.base_offset, receipt.was_duplicate) == (0, True)


async def test_a_cancelled_produce_goes_on_and_leaves_no_complaint() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with PartitionCluster() as cluster:
        leader = await cluster.leader()
        replica = leader.orders
        for follower in cluster.followers(leader):
            follower.disk.clear()
        task = asyncio.create_task(leader.append(batch_of(b"a"), acks=Acks.parse("3")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for follower in cluster.followers(leader):
            follower.disk.set()
        await eventually(lambda: replica.group.commit_index == 0)
        cluster.network.isolate(leader.node_id)
        await cluster.leader(other_than=leader.node_id)
    assert complaints == []


@pytest.mark.parametrize("acks", ["0", "1", "quorum", "3", "every"])
@in_virtual_time_with(PartitionCluster)
async def test_a_duplicate_is_answered_for_every_kind_of_acks(cluster: PartitionCluster, acks: str) -> None:
    # requirement: D3
    leader = await cluster.leader()
    await leader.append(batch_of(b"x"))
    body = batch_of(b"a", b"b", producer=PRODUCER, sequence=0)
    first = await leader.append(body)
    again = await leader.append(body, acks=Acks.parse(acks))
    assert (first.was_duplicate, again.was_duplicate) == (False, True)
    assert (again.base_offset, again.record_count) == (first.base_offset, 2)
    assert (again.timestamp_ms, again.leader_epoch) == (first.timestamp_ms, first.leader_epoch)
    assert (again.durability.acks, again.durability.committed) == (acks, acks != "0")
    assert leader.orders.group.last_index == 2


@in_virtual_time_with(lambda: PartitionCluster(1))
async def test_one_replica_commits_alone(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    for acks in ("quorum", "every", "1"):
        assert (await leader.append(batch_of(b"a"), acks=Acks.parse(acks))).durability.replicas == 1
    assert QUORUM == Acks.parse("all") == Acks.parse("-1")


@in_virtual_time_with(PartitionCluster)
async def test_voters_that_were_added_since_are_not_said_to_have_it(cluster: PartitionCluster) -> None:
    # requirement: RP8
    leader = await cluster.leader()
    group, others = leader.orders.group, cluster.followers(leader)
    nodes = frozenset(other.node_id for other in others)
    await group.change_membership(Membership(frozenset({leader.node_id}), learners=nodes))
    await asyncio.sleep(0.03)  # of virtual time: the learners know that they are
    for other in others:
        other.disk.clear()
    body = batch_of(b"a", producer=PRODUCER, sequence=0)
    assert (await leader.append(body)).durability.replicas == 1
    changing = asyncio.create_task(group.change_membership(Membership(nodes | {leader.node_id})))
    await eventually(lambda: len(group.membership.voters) == 3)
    again = await leader.append(body)
    assert (again.was_duplicate, again.durability.replicas) == (True, 1)
    for other in others:
        other.disk.set()
    await changing
    assert (await leader.append(batch_of(b"a"))).durability.replicas >= 2


@in_virtual_time_with(PartitionCluster)
async def test_voters_that_were_removed_since_are_not_said_to_have_it(cluster: PartitionCluster) -> None:
    # requirement: RP8
    leader = await cluster.leader()
    group, others = leader.orders.group, cluster.followers(leader)
    nodes = frozenset(other.node_id for other in others)
    body = batch_of(b"a", producer=PRODUCER, sequence=0)
    assert (await leader.append(body)).durability.replicas >= 2
    await group.change_membership(Membership(frozenset({leader.node_id}), learners=nodes))
    again = await leader.append(body)
    assert (again.was_duplicate, again.durability.replicas) == (True, 1)


@in_virtual_time_with(PartitionCluster)
async def test_a_batch_that_is_stored_is_known_with_fewer_replicas_than_its_acks(
    cluster: PartitionCluster,
) -> None:
    # requirement: D2, RP8
    leader = await cluster.leader()
    group, others = leader.orders.group, cluster.followers(leader)
    nodes = frozenset(other.node_id for other in others)
    body = batch_of(b"a", producer=PRODUCER, sequence=0)
    await leader.append(body, acks=Acks.parse("3"))
    await group.change_membership(Membership(frozenset({leader.node_id}), learners=nodes))
    assert (await leader.append(body, acks=Acks.parse("1"))).was_duplicate
    again = asyncio.create_task(leader.append(body, acks=Acks.parse("3"), timeout_ms=200))
    for new in (batch_of(b"b", producer=PRODUCER, sequence=1), batch_of(b"b")):
        with pytest.raises(InvalidRequest, match="has 1 replica"):
            await leader.append(new, acks=Acks.parse("3"))
    with pytest.raises(CommitUnknown) as told:
        await again
    assert told.value.details["committed"] is True


VALUES = [b"value-%d" % number for number in range(20)]


def holders(cluster: PartitionCluster, value: bytes) -> list[NodeId]:
    """Brokers whose disks hold a value, whatever is in the page cache."""
    found = []
    for node, disk in cluster.disks.items():
        assert isinstance(disk, FakeFilesystem)
        files = [disk.stored(path, durable=True) for path in disk.paths() if path.endswith(".log")]
        if any(file is not None and value in file.disk for file in files):
            found.append(node)
    return found


# requirement: N3
@in_virtual_time_with(PartitionCluster)
async def test_a_record_is_on_a_majority_of_disks_when_it_is_acknowledged(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    slow, _ = cluster.followers(leader)
    for value in VALUES:
        for follower in cluster.followers(leader):
            follower.disk.clear()
        acknowledged = asyncio.create_task(leader.append(batch_of(value)))
        await eventually(lambda: holders(cluster, value) == [leader.node_id])  # noqa: B023 - of this turn
        await asyncio.sleep(0.1)
        assert not acknowledged.done(), "one copy is not enough"
        slow.disk.set()
        await acknowledged
        assert holders(cluster, value) == sorted([leader.node_id, slow.node_id])


BATCHES = 20  # of each partition


async def append_all(cluster: ControlledCluster, target: TopicPartition) -> None:
    """Append to one partition, a batch at a time, each acknowledged before the next one."""
    for _ in range(BATCHES):
        await cluster.any.gateway.append(target, batch_of(b"x"), acks=QUORUM, timeout_ms=5_000)


async def append_one(cluster: ControlledCluster, target: TopicPartition, number: int) -> None:
    """One of many requests, which come a little apart."""
    await asyncio.sleep(number / 20_000)
    await cluster.any.gateway.append(target, batch_of(b"x"), acks=QUORUM, timeout_ms=5_000)


async def seconds_for(cluster: ControlledCluster, topic: str, partitions: int) -> float:
    """The virtual time that all partitions together take for their batches."""
    await cluster.create(topic, partitions)
    targets = [TopicPartition(topic, number) for number in range(partitions)]
    await asyncio.gather(*(append_all(cluster, target) for target in targets))  # also elects the leaders
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.gather(*(append_all(cluster, target) for target in targets))
    return loop.time() - began_s


# requirement: T6
@in_virtual_time_with(ControlledCluster)
async def test_four_partitions_take_more_than_twice_as_many_records(cluster: ControlledCluster) -> None:
    one_s = await seconds_for(cluster, "one", 1)
    four_s = await seconds_for(cluster, "four", 4)
    assert 4 * BATCHES / four_s > 2 * BATCHES / one_s


# requirement: T6
@in_virtual_time_with(ControlledCluster)
async def test_a_disk_that_hangs_holds_up_only_its_own_partitions(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders", 3, factor=1)
    placed = {info.replicas[0]: TopicPartition("orders", info.partition) for info in topic.partitions}
    assert set(placed) == set(cluster.nodes)
    for target in placed.values():
        await append_all(cluster, target)
    hanging, *working = cluster.nodes
    cluster.brokers[hanging].disk.clear()
    held_up = asyncio.create_task(append_all(cluster, placed[hanging]))
    await asyncio.gather(*(append_all(cluster, placed[node]) for node in working))
    assert not held_up.done()
    cluster.brokers[hanging].disk.set()
    await held_up


# requirement: B3
@in_virtual_time_with(ControlledCluster)
async def test_requests_that_come_during_a_sync_share_the_next_one(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 1)
    target = TopicPartition("orders", 0)
    await append_all(cluster, target)
    syncs = sum(broker.host.flusher.syncs for broker in cluster)
    await asyncio.gather(*(append_one(cluster, target, number) for number in range(100)))
    assert sum(broker.host.flusher.syncs for broker in cluster) - syncs < 3 * 10
