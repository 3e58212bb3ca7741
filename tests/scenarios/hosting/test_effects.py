"""Timers and follow-up commands are carried out by the leader alone, and derived again by the next one."""

from __future__ import annotations

import asyncio

from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.counter import TICK
from tests.helpers.simulated_brokers import HostingCluster


def ticks(cluster: HostingCluster) -> list[int]:
    return [broker.counter.machine.state.ticks for broker in cluster]


@in_virtual_time_with(HostingCluster)
async def test_a_timer_ticks_on_time_and_once_on_all_replicas(cluster: HostingCluster) -> None:
    await cluster.leading.counter.tick_every(1000)
    await asyncio.sleep(10.5)
    assert ticks(cluster) == [10, 10, 10]
    await cluster.leading.counter.tick_every(0)
    await asyncio.sleep(5)
    assert ticks(cluster) == [10, 10, 10]


@in_virtual_time_with(HostingCluster)
async def test_the_next_leader_derives_the_timers_from_the_state(cluster: HostingCluster) -> None:
    await cluster.leading.counter.tick_every(1000)
    await asyncio.sleep(3.5)
    assert ticks(cluster) == [3, 3, 3]
    before = cluster.leading
    cluster.network.cut_both(before.host.node_id, NodeId(1 + before.host.node_id % 3))
    cluster.network.cut_both(before.host.node_id, NodeId(1 + (before.host.node_id + 1) % 3))
    await cluster.until(lambda: any(broker.leads and broker is not before for broker in cluster))
    await asyncio.sleep(10)
    others = [broker.counter.machine.state.ticks for broker in cluster if broker is not before]
    assert others[0] == others[1] >= 12
    cluster.network.heal_all()
    await asyncio.sleep(3)
    assert len(set(ticks(cluster))) == 1


@in_virtual_time_with(HostingCluster)
async def test_a_timer_that_was_due_while_nobody_led_fires_then(cluster: HostingCluster) -> None:
    await cluster.leading.counter.tick_every(5000)
    for node in cluster.nodes:
        await cluster.stop(node)
    await asyncio.sleep(60)
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until(lambda: cluster.leader is not None)
    await asyncio.sleep(2)
    assert min(ticks(cluster)) >= 12


@in_virtual_time_with(HostingCluster)
async def test_a_command_that_the_group_does_not_take_is_proposed_again(cluster: HostingCluster) -> None:
    await cluster.leading.counter.tick_every(1000)
    for broker in cluster:
        broker.has_room = False  # ``propose`` raises ``StorageFull``, and no broker takes over
    await asyncio.sleep(3.5)
    assert ticks(cluster) == [0, 0, 0]
    for broker in cluster:
        broker.has_room = True
    await asyncio.sleep(1)
    assert min(ticks(cluster)) >= 3


@in_virtual_time_with(HostingCluster)
async def test_a_command_that_is_proposed_twice_is_carried_out_once(cluster: HostingCluster) -> None:
    leader = cluster.leading
    await leader.counter.tick_every(1000)
    (timer,) = leader.counter.machine.effects()
    await asyncio.sleep(1.2)
    assert leader.counter.machine.state.ticks == 1
    effects = leader.counter.effects
    assert effects is not None
    effects._take([timer])  # as a leader does that does not know how the first one ended
    await asyncio.sleep(0.5)
    assert ticks(cluster) == [1, 1, 1]
    assert timer.name == TICK
