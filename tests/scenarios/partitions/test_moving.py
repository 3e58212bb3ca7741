"""Replicas move between real brokers of one process while records come in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from partitions.metadata.image import PartitionInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.reassignment.reassigner import LOOK_S
from partitions.values import QUORUM
from raftlog.core.membership import Membership
from raftlog.errors import CommitUnknown, Conflict, InvalidRequest, RaftlogError
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import NodeId, Term, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.moving import (
    create,
    folders,
    holds,
    info,
    led_by,
    move,
    nodes,
    produce,
    replace_disk,
    values,
)
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.virtual_time import eventually


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_replicas_move_to_another_broker_and_back(cluster: ControlledCluster) -> None:
    before, outside = await create(cluster)
    await produce(cluster, b"a", b"b")
    after = [*before[1:], outside]
    await move(cluster, *after)
    await produce(cluster, b"c")
    await eventually(lambda: not holds(cluster, before[0]))
    gone = cluster.brokers[before[0]]
    assert ("orders", 0) not in gone.manager.replicas
    await move(cluster, *before)
    await produce(cluster, b"d")
    await eventually(lambda: not holds(cluster, outside))
    assert await values(cluster.any) == [b"a", b"b", b"c", b"d"]
    assert all(holds(cluster, broker) for broker in before)


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_replica_that_has_forgotten_its_vote_can_go_and_come_back(cluster: ControlledCluster) -> None:
    before, outside = await create(cluster)
    await produce(cluster, b"a")
    ill = before[0]
    await cluster.stop(ill)
    disk, (folder,) = cluster.disks[ill], folders(cluster, ill)
    for slot in ("hard_state.a", "hard_state.b"):
        assert disk.exists(f"{folder}/Partition-0/{slot}")
        disk.replace_file(f"{folder}/Partition-0/{slot}", b"rotten")
    await move(cluster, *before[1:], outside)
    broker = await cluster.start(ill)
    await eventually(lambda: not holds(cluster, ill))
    await move(cluster, *before)
    await produce(cluster, b"b")
    assert await values(broker) == [b"a", b"b"]


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_replicas_become_more_and_fewer_and_their_number_counts(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    await produce(cluster, b"a")
    await move(cluster, 1, 2, 3, 4, 5)
    led = await cluster.leader()
    replica = led.manager.replicas["orders", 0]
    assert set(replica.replicas) == set(cluster.nodes)
    receipt = await led.gateway.append(ORDERS, batch_of(b"b"), acks=QUORUM, timeout_ms=5000)
    assert receipt.durability.replicas >= 3
    await move(cluster, 4)
    await produce(cluster, b"c")
    assert await values(cluster.any) == [b"a", b"b", b"c"]
    await eventually(lambda: [node for node in cluster.nodes if holds(cluster, node)] == [4])
    await move(cluster, 4, 2, 3)
    assert await values(cluster.any) == [b"a", b"b", b"c"]


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=3))
async def test_a_voter_that_the_metadata_never_named_still_votes(cluster: ControlledCluster) -> None:
    """It was to vote when another was chosen in its place: its group cannot go on without it."""
    topic = await cluster.create("orders", factor=1)
    (stays,) = topic.partitions[0].replicas
    away, other = (node for node in cluster.nodes if node != stays)
    await produce(cluster, b"a")
    led = cluster.brokers[stays]
    await led.reassigner.stop()  # the test takes its steps
    await led.admin.change_replicas(MoveReplicas("orders", 0, nodes(stays, away)), 5000)
    await eventually(lambda: ("orders", 0) in cluster.brokers[away].manager.replicas)
    group = led.manager.replicas["orders", 0].group
    await group.change_membership(Membership(frozenset({stays}), frozenset({away})))
    last = group.last_index
    await eventually(lambda: group.status().learner_match_index.get(away) == last)
    await group.change_membership(Membership(frozenset({stays, away})))
    await cluster.stop(away)
    await eventually(lambda: not group.is_leader)  # alone it leads no more
    await led.admin.change_replicas(MoveReplicas("orders", 0, nodes(stays, other)), 5000)
    await cluster.stop(stays)
    late = await cluster.start(away)
    await eventually(lambda: info(late).target == (stays, other))
    await cluster.restart(away)  # when it starts again it knows that nobody wants it
    await cluster.start(stays)
    await eventually(lambda: info(cluster.brokers[other]).replicas == (stays, other), within_s=10.0)
    await eventually(lambda: not holds(cluster, away))
    await produce(cluster, b"b")
    assert await values(cluster.any) == [b"a", b"b"]


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_replica_that_left_is_removed_at_the_next_start(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    moved = topic.partitions[0].replicas[2]
    (fresh,) = set(cluster.nodes) - set(topic.partitions[0].replicas)
    gone = cluster.brokers[moved]
    (folder,) = folders(cluster, moved)
    await move(cluster, *topic.partitions[0].replicas[:2], fresh)
    await eventually(lambda: not holds(cluster, moved))
    cluster.disks[moved].make_directories(f"{folder}/Partition-0")  # the power had gone before it was removed
    await cluster.restart(moved)
    await eventually(lambda: not holds(cluster, moved))
    assert gone.manager.failures == cluster.brokers[moved].manager.failures == {}


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_move_is_called_off_by_going_back(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    before = topic.partitions[0].replicas
    (fresh,) = set(cluster.nodes) - set(before)
    await cluster.stop(fresh)  # alive for the metadata, but it will not answer
    wish = MoveReplicas("orders", 0, (*before[1:], fresh))
    await cluster.any.admin.change_replicas(wish, 5000)
    assert not await cluster.any.admin.until_settled(ORDERS, 300)
    await produce(cluster, b"a")
    await move(cluster, *before)
    assert await values(cluster.any) == [b"a"]


@in_virtual_time_with(ControlledCluster)
async def test_who_is_wanted_again_does_not_go_whatever_the_leader_has_said(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The yes comes before the metadata that wants it back, or behind it."""
    (partition,) = (await cluster.create("orders")).partitions
    manager = cluster.any.manager
    hosted = manager._hosted["orders", 0]
    asked = asyncio.Event()

    def wanted_again() -> None:
        hosted.reconfigure(hosted.topic, replace(partition), is_leaving=False)

    async def says_yes(target: TopicPartition, partition: PartitionInfo) -> bool:
        wanted_again()
        asked.set()
        return True

    hosted.is_leaving, hosted.may_be_deleted = True, True
    wanted_again()
    assert not hosted.may_be_deleted
    monkeypatch.setattr(manager._permits, "ask", says_yes)
    hosted.is_leaving = True
    await asyncio.wait_for(asked.wait(), 5)
    await asyncio.sleep(0)
    assert not hosted.may_be_deleted
    assert manager._hosted["orders", 0] is hosted


@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_the_next_leader_continues_a_move(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    before = topic.partitions[0].replicas
    first, second = sorted(set(cluster.nodes) - set(before))
    for number in range(20):
        await produce(cluster, b"%d" % number)
    led = await cluster.leader()
    wish = MoveReplicas("orders", 0, (led.node_id, first, second))
    await led.admin.change_replicas(wish, 5000)
    await cluster.stop(led.node_id)
    assert await cluster.any.admin.until_settled(ORDERS, 10_000)
    await cluster.start(led.node_id)
    await produce(cluster, b"20")
    assert await values(cluster.any) == [b"%d" % number for number in range(21)]


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_leadership_moves_to_the_named_broker_or_to_any(cluster: ControlledCluster) -> None:
    voters, outside = await create(cluster)
    asked = cluster.brokers[outside]  # one hop away from whoever leads
    await cluster.leader()
    for to in (*voters, *voters):
        await led_by(asked, to)
    led, _ = await asked.admin.transfer_leadership(ORDERS, None, 5000)
    assert led in voters
    with pytest.raises(InvalidRequest):
        await asked.admin.transfer_leadership(ORDERS, outside, 5000)
    down, *others = voters
    await led_by(asked, others[0])
    await cluster.stop(down)
    hosts = [cluster.brokers[node].host for node in others]
    await eventually(lambda: not any(host.is_reachable(down) for host in hosts))
    with pytest.raises(Conflict):
        await asked.admin.transfer_leadership(ORDERS, down, 5000)


# requirement: P4
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_leadership_moves_also_through_a_broker_that_cannot_reach_the_leader(
    cluster: ControlledCluster,
) -> None:
    voters, outside = await create(cluster)
    before = (await cluster.leader()).node_id
    cluster.network.cut_both(before, outside)
    led, _ = await cluster.brokers[outside].admin.transfer_leadership(ORDERS, None, 5000)
    assert led in set(voters) - {before}


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_transfer_to_any_replica_whose_answer_is_lost_is_not_repeated(
    cluster: ControlledCluster,
) -> None:
    _, outside = await create(cluster)
    asked = cluster.brokers[outside]
    leader = await cluster.leader()
    before = leader.orders.group.term
    moved = asyncio.create_task(asked.admin.transfer_leadership(ORDERS, None, 5000))
    while leader.orders.group.is_leader:
        await asyncio.sleep(0.0005)
    cluster.network.cut_both(leader.node_id, outside)
    with pytest.raises(CommitUnknown, match="leadership of orders/0 is transferred; check before"):
        await moved
    assert (await cluster.leader()).orders.group.term == before + 1


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_transfer_out_of_one_term_is_done_once_however_often_it_is_asked_for(
    cluster: ControlledCluster,
) -> None:
    _, outside = await create(cluster)
    asked = cluster.brokers[outside]
    before = (await cluster.leader()).orders.group.term
    moved = [await asked.admin.transfer_leadership(ORDERS, None, 5000, before) for _ in range(3)]
    assert moved == [(moved[0][0], Term(before + 1))] * 3
    again, _ = await asked.admin.transfer_leadership(ORDERS, None, 5000, Term(before + 1))
    assert again != moved[0][0]


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_transfer_out_of_one_term_whose_answer_is_lost_is_repeated(
    cluster: ControlledCluster,
) -> None:
    _, outside = await create(cluster)
    asked = cluster.brokers[outside]
    leader = await cluster.leader()
    before = leader.orders.group.term
    moved = asyncio.create_task(asked.admin.transfer_leadership(ORDERS, None, 5000, before))
    while leader.orders.group.is_leader:
        await asyncio.sleep(0.0005)
    cluster.network.cut_both(leader.node_id, outside)
    led, term = await moved
    now_leads = await cluster.leader()
    assert (led, term) == (now_leads.node_id, now_leads.orders.group.term)
    assert (led != leader.node_id, term) == (True, before + 1)


# requirement: F6
@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_a_partition_is_recovered_unsafely_only_with_the_phrase(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    survivor, *dead = topic.partitions[0].replicas
    await produce(cluster, b"a", b"b")
    with pytest.raises(Conflict, match="majority"):
        await cluster.any.admin.recover_unsafely(ORDERS, None, 5000)
    for node in dead:
        await cluster.stop(node)
    admin = cluster.brokers[survivor].admin
    with pytest.raises(Conflict) as refused:
        await admin.recover_unsafely(ORDERS, "yes", 5000)
    phrase = refused.value.details["confirm"]
    assert isinstance(phrase, str)
    assert refused.value.details["last_offset"] == 1
    brokers = cluster.brokers[survivor].controller.image.brokers
    await eventually(
        lambda: not any(cluster.brokers[survivor].controller.image.brokers[node].alive for node in dead)
    )
    assert set(brokers) == set(cluster.nodes)
    await admin.recover_unsafely(ORDERS, phrase, 5000)
    assert await admin.until_led(ORDERS, 5000)
    await produce(cluster, b"c")
    assert await values(cluster.brokers[survivor]) == [b"a", b"b", b"c"]
    for node in dead:
        await cluster.start(node)
    await cluster.registered()
    await eventually(lambda: not any(holds(cluster, node) for node in dead))
    await move(cluster, survivor, *dead)
    await produce(cluster, b"d")
    assert await values(cluster.any) == [b"a", b"b", b"c", b"d"]
    record = info(cluster.any).unsafe_recoveries[0]
    assert (record.survivor, set(record.lost), record.last_index) == (survivor, set(dead), 1)


# requirement: F6
@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_an_abandoned_log_does_not_return_with_lost_records(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    survivor, *dead = topic.partitions[0].replicas
    await produce(cluster, b"a")
    await cluster.stop(survivor)
    await produce(cluster, b"lost")
    for node in dead:
        await cluster.stop(node)
    admin = (await cluster.start(survivor)).admin
    await cluster.registered()
    image = cluster.brokers[survivor].controller
    await eventually(lambda: not any(image.image.brokers[node].alive for node in dead))
    with pytest.raises(Conflict) as refused:
        await admin.recover_unsafely(ORDERS, None, 5000)
    await admin.recover_unsafely(ORDERS, str(refused.value.details["confirm"]), 5000)
    assert await admin.until_led(ORDERS, 5000)
    await produce(cluster, b"b")
    for node in dead:
        await cluster.start(node)
    await cluster.registered()
    await move(cluster, survivor, *dead)  # before they have removed anything
    await led_by(cluster.any, dead[0])
    await produce(cluster, b"c")
    assert await values(cluster.any) == [b"a", b"b", b"c"]


# requirement: F6
@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_a_partition_without_majority_is_unavailable_and_stays(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    survivor, *dead = topic.partitions[0].replicas
    await produce(cluster, b"a")
    for node in dead:
        await cluster.stop(node)
    with pytest.raises(RaftlogError):
        await cluster.brokers[survivor].gateway.append(ORDERS, batch_of(b"b"), acks=QUORUM, timeout_ms=500)
    assert holds(cluster, survivor)


# requirement: F2, F6
@in_virtual_time_with(ControlledCluster)
async def test_no_change_begins_that_needs_a_lost_disk(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    keeper, other, wiped = topic.partitions[0].replicas
    await cluster.leader()
    await cluster.any.admin.transfer_leadership(ORDERS, keeper, 5000)
    await produce(cluster, b"a")
    await cluster.stop(wiped)
    request = MoveReplicas("orders", 0, (keeper, wiped))
    with contextlib.suppress(CommitUnknown):
        await cluster.brokers[keeper].admin.change_replicas(request, 1000)
    await asyncio.sleep(5 * LOOK_S)  # in which a change would begin
    replace_disk(cluster, wiped)
    await cluster.start(wiped)
    await cluster.registered()
    await eventually(lambda: set(info(cluster.any).replicas) == {keeper, wiped})
    await cluster.stop(other)
    await produce(cluster, b"b")
    assert await values(cluster.brokers[keeper]) == [b"a", b"b"]


# requirement: F6
@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_a_broker_with_a_replaced_disk_gives_no_vote(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    keeper, behind, wiped = topic.partitions[0].replicas
    await cluster.leader()
    await cluster.any.admin.transfer_leadership(ORDERS, keeper, 5000)
    await cluster.stop(behind)
    await produce(cluster, b"a")  # on the disks of the other two
    await cluster.stop(wiped)
    await cluster.stop(keeper)
    replace_disk(cluster, wiped)
    for node in (behind, wiped):
        await cluster.start(node)
    await cluster.registered()
    assert info(cluster.any).added == (wiped,)
    replica = cluster.brokers[wiped].manager.replicas
    await eventually(lambda: ("orders", 0) in replica)
    await asyncio.sleep(0.3)
    assert cluster.brokers[behind].manager.replicas["orders", 0].group.leader is None
    await cluster.start(keeper)
    assert await values(cluster.brokers[behind]) == [b"a"]
    await move(cluster, keeper, behind)
    await move(cluster, keeper, behind, wiped)
    assert await values(cluster.any) == [b"a"]
    await cluster.stop(keeper)
    await produce(cluster, b"b")  # it votes again


async def change(group: RaftGroup[None], target: Membership) -> None:
    """As soon as the leader knows that enough of its voters know it."""
    for _ in range(100):
        try:
            return await group.change_membership(target)
        except InvalidRequest:
            await asyncio.sleep(0.01)
    raise AssertionError(f"{target} is not reached")


@asynccontextmanager
async def led_by_an_earlier_target(
    **config: int | str,
) -> AsyncIterator[tuple[ControlledCluster, NodeId, tuple[NodeId, ...]]]:
    """A leader has reached a target, which leads to itself alone, and the target is another one again.

    It has not reported it: the metadata list the replicas of before, of which the first is none any more.
    """
    async with ControlledCluster(brokers=5) as cluster:
        topic = await cluster.create("orders", **config)
        before = topic.partitions[0].replicas
        outside = max(set(cluster.nodes) - set(before))
        await cluster.any.gateway.append(ORDERS, batch_of(b"a", key=b"k"), acks=QUORUM, timeout_ms=5000)
        for broker in cluster.brokers.values():
            await broker.reassigner.stop()
        await cluster.any.admin.change_replicas(MoveReplicas("orders", 0, (*before[1:], outside)), 5000)
        await eventually(lambda: ("orders", 0) in cluster.brokers[outside].manager.replicas)
        await led_by(cluster.any, before[1])
        group = cluster.brokers[before[1]].orders.group
        voters = frozenset((*before[1:], outside))
        await change(group, Membership(group.membership.voters, frozenset({outside})))
        await change(group, Membership(voters))
        await cluster.any.admin.transfer_leadership(ORDERS, outside, 5000)
        await eventually(lambda: cluster.brokers[outside].orders.group.is_ready)
        yield cluster, outside, before


# requirement: F2
async def test_a_replica_begins_empty_by_a_leader_that_the_metadata_do_not_list() -> None:
    async with led_by_an_earlier_target(cleanup_policy="compact") as (cluster, outside, before):
        assert cluster.brokers[before[0]].orders.group.last_index >= 0
        await cluster.any.admin.change_replicas(MoveReplicas("orders", 0, before), 5000)
        for broker in cluster.brokers.values():
            await broker.reassigner.start()
        assert await cluster.any.admin.until_settled(ORDERS, 20_000)
        await eventually(lambda: not holds(cluster, outside))


# requirement: F2
async def test_an_unsafe_recovery_asks_a_replica_that_the_metadata_do_not_list() -> None:
    """The first replica of before answers, too; its log lacks what was acknowledged without it."""
    async with led_by_an_earlier_target() as (cluster, outside, before):
        await cluster.any.admin.change_replicas(MoveReplicas("orders", 0, before), 5000)
        await cluster.brokers[outside].gateway.append(
            ORDERS, batch_of(b"b", key=b"k"), acks=QUORUM, timeout_ms=5000
        )
        admin = cluster.brokers[outside].admin
        for node in before[1:]:
            await cluster.stop(node)
        alive = cluster.brokers[outside].controller
        await eventually(lambda: not any(alive.image.brokers[node].alive for node in before[1:]))
        found = await admin.survey(ORDERS)
        assert (found.survivor, set(found.lost)) == (outside, {*before[1:]})
        recovered = await admin.recover_unsafely(ORDERS, found.phrase, 5000)
        assert recovered.replicas == (outside,)
        await eventually(lambda: cluster.brokers[outside].orders.group.is_ready)
        assert await values(cluster.brokers[outside]) == [b"a", b"b"]
