"""The log start is replicated: it never falls, whoever leads, restarts or was away."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from partitions.replica.replica import PartitionReplica
from partitions.values import QUORUM, FetchRequest, Start
from raftlog.errors import OffsetOutOfRange, StorageFull
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.state_files import CHECKPOINT_NAME
from raftlog.types import Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually


async def look(cluster: ControlledCluster) -> None:
    for broker in cluster:
        await broker.retention.look()


async def filled(cluster: ControlledCluster, records: int = 6) -> ControlledBroker:
    """The leader of ``orders`` with a segment for each record, all of which may go but for the newest."""
    await cluster.create("orders", segment_ms=50, retention_ms=50)
    leader = await cluster.leader()
    for number in range(records):
        await held(leader).append(batch_of(b"%d" % number), acks=QUORUM, timeout_ms=5000)
        await asyncio.sleep(0.06)  # an age, what the tests are about
    return leader


def held(broker: ControlledBroker) -> PartitionReplica:
    return broker.manager.replicas["orders", 0]


async def lead(cluster: ControlledCluster, broker: ControlledBroker) -> None:
    """Have a broker lead ``orders``."""
    async with asyncio.timeout(10):
        while not held(broker).group.is_ready:
            for other in cluster:
                if held(other).group.is_leader:
                    held(other).group.transfer_leadership(broker.node_id)
            await asyncio.sleep(0.1)


async def start_for_readers(broker: ControlledBroker) -> Offset:
    found = await held(broker).fetch(FetchRequest(position=Start.EARLIEST))
    assert found.offset == found.log_start_offset
    return found.log_start_offset


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_the_start_does_not_fall_when_a_replica_leads_that_was_away(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    away = next(node for node in cluster.nodes if node != leader.node_id)
    await eventually(lambda: held(cluster.brokers[away]).group.durable_index >= 5)
    await cluster.stop(away)
    await look(cluster)
    start = await start_for_readers(leader)
    assert start > 0
    back = await cluster.start(away)
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    await eventually(lambda: held(back).group.durable_index == held(leader).group.durable_index)
    await lead(cluster, back)
    assert held(back).group.log.first_index < start  # its segments are still there
    assert await start_for_readers(back) >= start
    with pytest.raises(OffsetOutOfRange) as refused:
        await held(back).fetch(FetchRequest(position=Offset(start - 1)))
    assert refused.value.details["start"] >= start  # type: ignore[operator]


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_start_survives_a_restart_from_states_that_are_older(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    await look(cluster)
    await look(cluster)
    start = await start_for_readers(leader)
    await eventually(lambda: all(held(broker).machine.log_start.offset == start for broker in cluster))
    for node in cluster.nodes:
        log = cast("SegmentedLog", held(cluster.brokers[node]).group.log)
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
    await eventually(lambda: all(held(broker).group.durable_index >= 5 for broker in heirs))
    await leader.retention.look()
    start = await start_for_readers(leader)
    await cluster.stop(leader.node_id)
    await eventually(lambda: any(held(broker).group.is_leader for broker in heirs))
    heir = next(broker for broker in heirs if held(broker).group.is_leader)
    with pytest.raises(OffsetOutOfRange) as refused:
        await held(heir).fetch(FetchRequest(position=Offset(start - 1)))
    assert refused.value.details["start"] == start


# requirement: RT4
@in_virtual_time_with(ControlledCluster)
async def test_a_leader_without_its_followers_deletes_nothing(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    for broker in [broker for broker in cluster if broker is not leader]:
        await cluster.stop(broker.node_id)
    await leader.retention.look()
    assert held(leader).group.log.first_index == 0
    assert held(leader).log_start_offset == 0


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_an_idle_partition_writes_its_log_start_once(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    for _ in range(10):
        await look(cluster)
        await asyncio.sleep(0.06)  # an age
    assert await start_for_readers(leader) == 5
    assert held(leader).group.last_index == 6  # the newest record, and the start


# requirement: RT3
@in_virtual_time_with(ControlledCluster)
async def test_retention_uses_the_reserve_of_a_disk_without_room(cluster: ControlledCluster) -> None:
    leader = await filled(cluster)
    for broker in cluster:
        broker.has_room = False
    with pytest.raises(StorageFull):
        await held(leader).append(batch_of(b"v"), acks=QUORUM, timeout_ms=5000)
    await look(cluster)
    assert held(leader).group.log.first_index == 5
