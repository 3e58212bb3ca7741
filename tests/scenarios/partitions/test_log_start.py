"""The log start is replicated: it never falls, whoever leads, restarts or was away."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from partitions.values import FetchRequest, Start
from raftlog.errors import OffsetOutOfRange, StorageFull
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.state_files import CHECKPOINT_NAME
from raftlog.types import Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually


async def filled(cluster: ControlledCluster, records: int = 6) -> ControlledBroker:
    """The leader of ``orders`` with a segment for each record, all of which may go but for the newest."""
    await cluster.create("orders", segment_ms=50, retention_ms=50)
    leader = await cluster.leader()
    for number in range(records):
        await leader.append(batch_of(b"%d" % number))
        await asyncio.sleep(0.06)  # an age, what the tests are about
    return leader


async def start_for_readers(broker: ControlledBroker) -> Offset:
    found = await broker.orders.fetch(FetchRequest(position=Start.EARLIEST))
    assert found.offset == found.log_start_offset
    return found.log_start_offset


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_the_start_does_not_fall_when_a_replica_leads_that_was_away(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    away = next(node for node in cluster.nodes if node != leader.node_id)
    await eventually(lambda: cluster.brokers[away].orders.group.durable_index >= 5)
    await cluster.stop(away)
    await cluster.look_for_retention()
    start = await start_for_readers(leader)
    assert start > 0
    back = await cluster.start(away)
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    await eventually(lambda: back.orders.group.durable_index == leader.orders.group.durable_index)
    await cluster.lead(away)
    assert back.orders.group.log.first_index < start  # its segments are still there
    assert await start_for_readers(back) >= start
    with pytest.raises(OffsetOutOfRange) as refused:
        await back.orders.fetch(FetchRequest(position=Offset(start - 1)))
    assert refused.value.details["start"] >= start  # type: ignore[operator]


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_start_survives_a_restart_from_states_that_are_older(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    await cluster.look_for_retention()
    await cluster.look_for_retention()
    start = await start_for_readers(leader)
    await eventually(lambda: all(broker.orders.machine.log_start.offset == start for broker in cluster))
    for node in cluster.nodes:
        log = cast("SegmentedLog", cluster.brokers[node].orders.group.log)
        assert log.states.load(log.first_index) is not None  # it is from before the start
        await cluster.stop(node)
        cluster.disks[node].remove(f"{log.directory}/{CHECKPOINT_NAME}")
    for node in cluster.nodes:
        await cluster.start(node)
    again = await cluster.leader()
    assert await start_for_readers(again) == start


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_new_leader_knows_the_log_start_before_it_is_ready(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    heirs = [broker for broker in cluster if broker is not leader]
    await eventually(lambda: all(broker.orders.group.durable_index >= 5 for broker in heirs))
    await leader.retention.look()
    start = await start_for_readers(leader)
    await cluster.stop(leader.node_id)
    await eventually(lambda: any(broker.orders.group.is_leader for broker in heirs))
    heir = next(broker for broker in heirs if broker.orders.group.is_leader)
    with pytest.raises(OffsetOutOfRange) as refused:
        await heir.orders.fetch(FetchRequest(position=Offset(start - 1)))
    assert refused.value.details["start"] == start


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_leader_without_its_followers_deletes_nothing(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    for broker in [broker for broker in cluster if broker is not leader]:
        await cluster.stop(broker.node_id)
    await leader.retention.look()
    assert leader.orders.group.log.first_index == 0
    assert leader.orders.log_start_offset == 0


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_an_idle_partition_writes_its_log_start_once(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    for _ in range(10):
        await cluster.look_for_retention()
        await asyncio.sleep(0.06)  # an age
    assert await start_for_readers(leader) == 5
    assert leader.orders.group.last_index == 6  # the newest record, and the start


# requirement: RT3
@in_virtual_time_with(ControlledCluster)
async def test_retention_uses_the_reserve_of_a_disk_without_room(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    for broker in cluster:
        broker.has_room = False
    with pytest.raises(StorageFull):
        await leader.append(batch_of(b"v"))
    await cluster.look_for_retention()
    assert leader.orders.group.log.first_index == 5
