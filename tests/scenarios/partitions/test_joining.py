"""Brokers join a running cluster, leave it for good, and the voters of the metadata follow."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from partitions.metadata.commands import DecommissionBroker, ForgetBroker
from raftlog.core.membership import Membership
from raftlog.errors import Conflict, RaftlogError
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import METADATA_GROUP, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import CONTROLLER, ControlledBroker, ControlledCluster
from tests.helpers.moving import move, produce, values
from tests.helpers.virtual_time import eventually

HEALS = replace(CONTROLLER, restore_after_ms=4000)


def members_of(broker: ControlledBroker) -> Membership:
    return broker.host.groups[METADATA_GROUP].membership


def are(cluster: ControlledCluster, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> bool:
    """Whether every broker that runs knows these members, and that they are committed."""
    wanted = Membership(frozenset(map(NodeId, voters)), frozenset(map(NodeId, learners)))
    return all(
        members_of(broker) == wanted and broker.host.groups[METADATA_GROUP].is_membership_committed
        for broker in cluster
    )


async def become(cluster: ControlledCluster, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> None:
    await eventually(lambda: are(cluster, voters, learners), within_s=60.0)


async def decommission(cluster: ControlledCluster, number: int, *, undo: bool = False) -> None:
    asked = next(broker for broker in cluster if broker.node_id != number)
    await asked.controller.change_broker(DecommissionBroker(NodeId(number), not undo), 5000)


# requirement: F2
@in_virtual_time_with(ControlledCluster)
async def test_a_broker_that_joins_gets_the_metadata_and_replicas(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    await produce(cluster, b"a")
    joined = await cluster.join(4)
    await cluster.registered()
    await become(cluster, (1, 2, 3), (4,))
    assert joined.controller.image == cluster.any.controller.image
    await move(cluster, 2, 3, 4)
    await produce(cluster, b"b")
    assert await values(joined) == [b"a", b"b"]
    later = await cluster.create("later", 8)
    assert any(4 in partition.replicas for partition in later.partitions)


# requirement: F2, F3
@in_virtual_time_with(ControlledCluster)
async def test_five_brokers_vote_from_the_fifth_on_and_three_after_two(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    for number in (4, 5):
        await cluster.join(number)
    await become(cluster, (1, 2, 3, 4, 5))
    for number in (1, 2):  # of the first ones
        await decommission(cluster, number)
    await become(cluster, (3, 4, 5), (1, 2))
    await eventually(
        lambda: {*cluster.any.controller.image.topics["orders"].partitions[0].replicas} == {3, 4, 5}
    )
    for number in (1, 2):
        await cluster.stop(NodeId(number))
    await cluster.stop(NodeId(3))
    await cluster.create("later", factor=1)  # two of three voters decide, and those that left do not count


@in_virtual_time_with(ControlledCluster)
async def test_a_decommissioned_controller_is_replaced_by_another_broker(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await become(cluster, (1, 2, 3), (4,))
    leading = (await cluster.controller_broker()).node_id
    await decommission(cluster, leading)
    others = tuple(node for node in (1, 2, 3, 4) if node != leading)
    await become(cluster, others, (leading,))
    await eventually(lambda: cluster.any.controller.leader in others)
    await decommission(cluster, leading, undo=True)
    assert are(cluster, others, (leading,)), "who does not vote gets its vote back only when it is needed"


# requirement: F1
@in_virtual_time_with(lambda: ControlledCluster(settings=HEALS))
async def test_a_dead_voter_is_replaced_and_does_not_vote_when_it_returns(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await become(cluster, (1, 2, 3), (4,))
    leader = await cluster.controller_broker()
    dead = next(node for node in cluster.nodes if node != leader.node_id)
    staying = tuple(node for node in (1, 2, 3, 4) if node != dead)
    await cluster.stop(dead)
    await become(cluster, staying, (dead,))
    await cluster.start(dead)
    await cluster.registered()
    await become(cluster, staying, (dead,))


# requirement: F2
@in_virtual_time_with(ControlledCluster)
async def test_a_joined_voter_that_has_lost_its_disk_rejoins(cluster: ControlledCluster) -> None:
    for number in (4, 5):
        await cluster.join(number)
    await become(cluster, (1, 2, 3, 4, 5))
    bootstrap = cluster.any.controller.image.bootstrap_id
    await cluster.stop(NodeId(4))
    cluster.disks[NodeId(4)] = FakeFilesystem()
    again = await cluster.start(NodeId(4))
    assert again.host.groups[METADATA_GROUP].is_rejoining, "it gives no vote yet"
    await cluster.registered()
    await eventually(lambda: not again.host.groups[METADATA_GROUP].is_rejoining)
    await become(cluster, (1, 2, 3, 4, 5))
    assert again.controller.image.bootstrap_id == bootstrap


@in_virtual_time_with(ControlledCluster)
async def test_a_machine_may_take_the_id_of_a_dead_broker(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    leader = await cluster.controller_broker()
    dead = next(node for node in cluster.nodes if node != leader.node_id)
    await cluster.stop(dead)
    await eventually(lambda: not leader.controller.image.brokers[dead].alive)
    with pytest.raises(Conflict):
        await cluster.admit(dead, admission="a" * 32)
    cluster.nodes.remove(dead)  # its settings say that it has joined
    new = await cluster.join(dead, admission="b" * 32, replaces=True)
    await cluster.registered()
    assert new.controller.image.topics["orders"].partitions[0].added == (dead,)
    await eventually(lambda: not new.host.groups[METADATA_GROUP].is_rejoining)


# requirement: F2
@in_virtual_time_with(ControlledCluster)
async def test_brokers_join_while_the_controller_moves(cluster: ControlledCluster) -> None:
    leader = await cluster.controller_broker()
    await cluster.admit(4)
    leader.host.groups[METADATA_GROUP].transfer_leadership(
        next(node for node in cluster.nodes if node != leader.node_id)
    )
    await cluster.join(4)
    await cluster.stop((await cluster.controller_broker()).node_id)
    await cluster.join(5)
    voters = {*members_of(cluster.any).voters}
    await eventually(lambda: {4, 5} <= members_of(cluster.any).members)
    assert voters >= {1, 2, 3}


@in_virtual_time_with(ControlledCluster)
async def test_brokers_that_were_removed_have_no_say_about_the_time(cluster: ControlledCluster) -> None:
    for number in (2, 3):
        await decommission(cluster, number)
    await become(cluster, (1,), (2, 3))
    for number in (2, 3, 1):
        await cluster.stop(NodeId(number))
    alone = await cluster.start(NodeId(1))
    await eventually(lambda: alone.host.clock.is_known)


@in_virtual_time_with(lambda: ControlledCluster(brokers=1))
async def test_a_cluster_of_one_grows_to_three(cluster: ControlledCluster) -> None:
    await cluster.join(2)
    await become(cluster, (1,), (2,))
    await cluster.join(3)
    await become(cluster, (1, 2, 3))
    await cluster.stop(NodeId(1))
    await cluster.create("orders", factor=1)


FOUR = NodeId(4)


def members(broker: ControlledBroker) -> set[NodeId]:
    return {*broker.host.groups[METADATA_GROUP].membership.members}


async def forget(cluster: ControlledCluster, node: NodeId) -> None:
    asked = next(broker for broker in cluster if broker.node_id != node)
    await asked.controller.change_broker(ForgetBroker(node), 5000)


async def leave(cluster: ControlledCluster, node: NodeId) -> None:
    """Decommission a broker, and stop it once it holds nothing."""
    await cluster.any.controller.change_broker(DecommissionBroker(node), 5000)
    others = [broker for broker in cluster if broker.node_id != node]
    await eventually(
        lambda: all(
            not broker.controller.image.replicas_on(node)
            and node not in broker.host.groups[METADATA_GROUP].membership.all_voters
            for broker in others
        ),
        within_s=60.0,
    )
    await cluster.stop(node)
    await eventually(lambda: all(not broker.controller.image.brokers[node].alive for broker in others))


async def forgotten(cluster: ControlledCluster, node: NodeId) -> None:
    """Return once all brokers have removed it, also from the members of the metadata group."""
    await eventually(
        lambda: all(
            node not in broker.controller.image.brokers and node not in members(broker) for broker in cluster
        )
    )


# requirement: F3
@in_virtual_time_with(ControlledCluster)
async def test_the_process_of_a_removed_broker_is_refused(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    await cluster.join(4)
    await cluster.registered()
    await leave(cluster, FOUR)
    await forget(cluster, FOUR)
    await forgotten(cluster, FOUR)
    assert all(FOUR not in broker.host.reachable_peers for broker in cluster)
    version = cluster.any.controller.image.version
    again = await cluster.start(FOUR)
    await eventually(lambda: again.host.is_refused)
    assert "removed from the cluster: stop this process" in again.controller.leader_known
    await asyncio.sleep(5)
    assert not again.controller.registration.is_registered
    assert again.host.groups[METADATA_GROUP].leader is None
    others = [broker for broker in cluster if broker is not again]
    assert all(FOUR not in members(broker) for broker in others)
    assert all(broker.controller.image.version == version for broker in others)
    with pytest.raises(RaftlogError, match="broker 4 was removed from the cluster") as refused:
        await again.controller.current_image(500)
    assert "retry" not in str(refused.value), "that broker will not find a controller later either"
    await cluster.stop(FOUR)


# requirement: F3
@in_virtual_time_with(ControlledCluster)
async def test_its_process_is_refused_without_its_disk_too(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await cluster.registered()
    await leave(cluster, FOUR)
    await forget(cluster, FOUR)
    cluster.disks[FOUR] = FakeFilesystem()
    again = await cluster.start(FOUR)
    await eventually(lambda: again.host.is_refused)
    await asyncio.sleep(2)
    assert FOUR not in cluster.any.controller.image.brokers
    await cluster.stop(FOUR)


# requirement: F1, F3
@in_virtual_time_with(lambda: ControlledCluster(settings=HEALS))
async def test_a_dead_voter_is_removed_and_cannot_lead_when_it_returns(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await cluster.registered()
    await cluster.create("orders")
    await produce(cluster, b"a")
    leader = await cluster.controller_broker()
    dead = next(node for node in cluster.nodes if node != leader.node_id)
    await cluster.stop(dead)
    with pytest.raises(Conflict, match=f"broker {dead}"):
        await forget(cluster, dead)
    for _ in range(300):  # its replicas are restored on others, and its vote goes to broker 4
        try:
            await forget(cluster, dead)
            break
        except Conflict:
            await asyncio.sleep(0.1)
    await forgotten(cluster, dead)
    again = await cluster.start(dead)
    await eventually(lambda: again.host.is_refused)
    await asyncio.sleep(5)
    assert again.host.groups[METADATA_GROUP].leader is None
    assert await values(next(broker for broker in cluster if broker is not again)) == [b"a"]
    await cluster.stop(dead)


@in_virtual_time_with(ControlledCluster)
async def test_a_removed_broker_that_was_only_cut_off_hears_of_it(cluster: ControlledCluster) -> None:
    joined = await cluster.join(4)
    await cluster.registered()
    await cluster.any.controller.change_broker(DecommissionBroker(FOUR), 5000)
    others = [broker for broker in cluster if broker is not joined]
    cluster.network.isolate(FOUR)
    await eventually(lambda: all(not broker.controller.image.brokers[FOUR].alive for broker in others))
    await forget(cluster, FOUR)
    cluster.network.heal_all()
    await eventually(lambda: joined.host.is_refused)
    assert not any(broker.host.is_reachable(FOUR) for broker in others)
    await cluster.stop(FOUR)


@in_virtual_time_with(ControlledCluster)
async def test_another_broker_joins_under_another_id_after_a_removal(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await cluster.registered()
    await leave(cluster, FOUR)
    await forget(cluster, FOUR)
    with pytest.raises(Conflict, match="the id 4 belonged to a broker that was removed"):
        await cluster.admit(4, admission="b" * 32, replaces=True)
    await cluster.join(5)
    await cluster.registered()
    await eventually(lambda: all(members(broker) == {1, 2, 3, 5} for broker in cluster))
    restarted = NodeId(2)
    again = await cluster.restart(restarted)  # from a snapshot or the log
    await cluster.registered()
    assert {*again.controller.image.forgotten} == {4}
