"""Brokers that are removed for good, and what becomes of their processes: real controllers and groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from partitions.metadata.commands import DecommissionBroker, DrainBroker, ForgetBroker
from raftlog.errors import Conflict, RaftlogError, UnknownBroker
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import METADATA_GROUP, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import CONTROLLER, ControlledBroker, ControlledCluster
from tests.helpers.moving import produce, values
from tests.helpers.virtual_time import eventually

FOUR = NodeId(4)
HEALS = replace(CONTROLLER, broker_dead_ms=4000)


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
    assert "removed from the cluster for good: stop this process" in again.controller.leader_known
    await asyncio.sleep(5)
    assert not again.controller.registration.is_registered
    assert again.host.groups[METADATA_GROUP].leader is None
    others = [broker for broker in cluster if broker is not again]
    assert all(FOUR not in members(broker) for broker in others)
    assert all(broker.controller.image.version == version for broker in others)
    with pytest.raises(RaftlogError, match="broker 4 was removed from the cluster for good") as refused:
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
async def test_a_broker_that_is_down_for_a_moment_is_not_removed(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await cluster.registered()
    await cluster.stop(FOUR)
    await eventually(lambda: not cluster.any.controller.image.brokers[FOUR].alive)
    with pytest.raises(Conflict, match="neither decommissioned nor dead"):
        await forget(cluster, FOUR)
    await cluster.start(FOUR)
    await cluster.registered()


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


# requirement: F3
@in_virtual_time_with(ControlledCluster)
async def test_two_administrators_and_a_lost_answer(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await cluster.registered()
    await leave(cluster, FOUR)
    await asyncio.gather(*(broker.controller.change_broker(ForgetBroker(FOUR), 5000) for broker in cluster))
    version = cluster.any.controller.image.version
    await forget(cluster, FOUR)
    assert cluster.any.controller.image.version == version
    with pytest.raises(RaftlogError, match="no broker 4 is registered"):
        await cluster.any.controller.change_broker(DecommissionBroker(FOUR, decommissioned=False), 5000)
    with pytest.raises(UnknownBroker):
        await forget(cluster, NodeId(9))


@in_virtual_time_with(ControlledCluster)
async def test_another_broker_joins_under_another_id_after_a_removal(cluster: ControlledCluster) -> None:
    await cluster.join(4)
    await cluster.registered()
    await leave(cluster, FOUR)
    await forget(cluster, FOUR)
    with pytest.raises(Conflict, match="the id 4 is that of a broker that was removed"):
        await cluster.admit(4, admission="b" * 32, replaces=True)
    await cluster.join(5)
    await cluster.registered()
    await eventually(lambda: all(members(broker) == {1, 2, 3, 5} for broker in cluster))
    restarted = NodeId(2)
    await cluster.stop(restarted)
    again = await cluster.start(restarted)  # from a snapshot or the log
    await cluster.registered()
    assert {*again.controller.image.forgotten} == {4}


# requirement: F3
@in_virtual_time_with(ControlledCluster)
async def test_enough_brokers_for_a_topic_stay_undrained(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    await cluster.any.controller.change_broker(DrainBroker(NodeId(1)), 5000)
    with pytest.raises(Conflict, match="topic 'orders' has replication factor 3"):
        await cluster.any.controller.change_broker(DrainBroker(NodeId(2)), 5000)
    await cluster.any.controller.change_broker(DrainBroker(NodeId(1)), 5000)  # repeated
    await cluster.any.controller.change_broker(DecommissionBroker(NodeId(1), decommissioned=False), 5000)
    await cluster.any.controller.change_broker(DrainBroker(NodeId(2)), 5000)
