"""Retention deletes old records on all replicas, and the replicated log start never falls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from partitions.values import QUORUM, FetchRequest, Start
from raftlog.errors import OffsetOutOfRange, StorageFull
from raftlog.hosting.retention import GRACE_LOOKS, RetentionManager
from raftlog.hosting.tenant import Tenant
from raftlog.storage.retention import RetentionLimits
from raftlog.storage.segment import INDEX_SUFFIX
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.state_files import CHECKPOINT_NAME
from raftlog.types import GroupId, Index, NodeId, Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of
from tests.helpers.raft_member import members
from tests.helpers.virtual_time import eventually

GROUP = GroupId(1)


def start_of(broker: ControlledBroker) -> int:
    """Where its log begins."""
    return broker.orders.group.log.first_index


async def leader_that_has_closed_one_record(cluster: ControlledCluster) -> ControlledBroker:
    """Two records: on every replica the first stands alone in a segment that is old."""
    await cluster.create("orders", segment_ms=50, retention_ms=50)
    leader = await cluster.leader()
    await leader.append(batch_of(b"v"))
    await eventually(lambda: all(broker.orders.group.durable_index == 0 for broker in cluster))
    await asyncio.sleep(0.06)  # what the tests are about: an age
    await cluster.look_for_retention()
    receipt = await leader.append(batch_of(b"w"))
    assert receipt.base_offset == 1
    await eventually(lambda: all(broker.orders.group.durable_index == 1 for broker in cluster))
    return leader


# requirement: RT2, L2
@in_virtual_time_with(ControlledCluster)
async def test_an_idle_partition_closes_its_old_segment_and_lets_it_go(cluster: ControlledCluster) -> None:
    await leader_that_has_closed_one_record(cluster)
    await cluster.look_for_retention()
    assert [start_of(broker) for broker in cluster] == [1, 1, 1]


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_a_replica_that_was_away_is_cut_when_it_is_back(cluster: ControlledCluster) -> None:
    leader = await leader_that_has_closed_one_record(cluster)
    away = next(node for node in cluster.nodes if node != leader.node_id)
    await cluster.stop(away)
    await cluster.look_for_retention()
    assert start_of(leader) == 1
    back = await cluster.start(away)
    await eventually(lambda: ("orders", 0) in back.manager.replicas)
    assert start_of(back) == 0
    async with asyncio.timeout(10):
        while start_of(back) == 0:
            await cluster.look_for_retention()
            await asyncio.sleep(0.02)
    assert start_of(back) == 1


# requirement: RT2
@pytest.mark.parametrize("error", [MemoryError(), ValueError("planted")], ids=repr)
@in_virtual_time_with(ControlledCluster)
async def test_an_unexpected_error_in_one_partition_keeps_no_other_from_its_retention(
    cluster: ControlledCluster, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("broken")
    rolls = SegmentedLog.roll_if_due

    def roll_if_due(log: SegmentedLog) -> None:
        if "broken" in log.directory:
            raise error
        rolls(log)

    monkeypatch.setattr(SegmentedLog, "roll_if_due", roll_if_due)
    failed = cluster.expect_failed_duties()
    await leader_that_has_closed_one_record(cluster)
    await cluster.look_for_retention()
    assert [start_of(broker) for broker in cluster] == [1, 1, 1]
    assert failed == 2 * 3 * ["retention of broken/0"]  # two looks of three brokers


async def leader_with_a_closed_segment(cluster: ControlledCluster, **config: int | str) -> ControlledBroker:
    """A young record that stands alone in a closed segment, and one behind it."""
    await cluster.create("orders", segment_ms=50, **config)
    leader = await cluster.leader()
    for value in (b"v", b"w"):
        await leader.append(batch_of(value))
        await asyncio.sleep(0.06)  # longer than segment.ms
        await cluster.look_for_retention()
    assert leader.orders.group.log.size_bytes > 0
    return leader


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_a_clock_two_weeks_ahead_deletes_no_segment(cluster: ControlledCluster) -> None:
    leader = await leader_with_a_closed_segment(cluster, retention_ms=86_400_000)
    leader.clock.shift_ms = 14 * 86_400_000
    await cluster.look_for_retention()
    assert [start_of(broker) for broker in cluster] == [0, 0, 0]


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_records_that_clients_date_long_ago_are_kept_for_their_time(cluster: ControlledCluster) -> None:
    config = {"message.timestamp.type": "CreateTime"}
    leader = await leader_with_a_closed_segment(cluster, retention_ms=86_400_000, **config)
    await cluster.look_for_retention()
    assert start_of(leader) == 0


# requirement: RT2
@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_segments_are_dated_by_the_later_clock_so_that_none_looks_older_than_it_is(
    cluster: ControlledCluster, tmp_path: Path
) -> None:
    config = {"message.timestamp.type": "CreateTime"}
    leader = await leader_with_a_closed_segment(cluster, retention_ms=100_000, **config)
    others = [broker for broker in cluster if broker is not leader]
    await cluster.stop(leader.node_id)
    for index in tmp_path.rglob(f"*{INDEX_SUFFIX}"):
        index.unlink()  # the batches alone do not tell when they came
    for broker in others:
        broker.clock.shift_ms = -300_000
    back = await cluster.start(leader.node_id)
    await eventually(lambda: ("orders", 0) in back.manager.replicas and back.host.clock.is_trusted)
    await eventually(lambda: back.host.clock.trusted_ms() < back.host.clock.wall_ms() - 200_000)
    await back.retention.look()
    for broker in others:
        broker.clock.shift_ms = 0
    await eventually(lambda: back.host.clock.trusted_ms() > back.host.clock.wall_ms() - 10_000)
    segments = back.orders.group.log.closed_segments
    assert segments
    assert all(segment.stored_ms > back.host.clock.trusted_ms() - 100_000 for segment in segments)


# requirement: RT2
@in_virtual_time_with(ControlledCluster)
async def test_a_record_that_a_client_dates_far_ahead_is_deleted(cluster: ControlledCluster) -> None:
    config = {"message.timestamp.type": "CreateTime"}
    leader = await leader_with_a_closed_segment(cluster, retention_ms=200, **config)
    receipt = await leader.append(batch_of(b"far ahead", timestamp_ms=1 << 60))
    async with asyncio.timeout(5):
        while start_of(leader) <= receipt.base_offset:
            await leader.append(batch_of(b"x"))
            await asyncio.sleep(0.06)
            await cluster.look_for_retention()


# requirement: RT3
@pytest.mark.parametrize("who", ["voter", "learner"])
async def test_a_member_that_never_catches_up_holds_a_log_back_for_a_while(who: str) -> None:
    settings = LogSettings(segment_bytes=300, index_interval_bytes=512)
    cluster = NodeCluster(nodes=4, voters=3, log_settings=settings)
    await cluster.start()
    leader = cluster.leading()
    await leader.groups[GROUP].change_membership(members(1, 2, 3, learners=[4]))
    full = cluster.brokers[NodeId(4)] if who == "learner" else cluster.followers()[0]
    keepers = {broker: keeper_of(broker) for broker in cluster.up}
    full.filesystem.capacity_bytes = full.filesystem.used_bytes
    for number in range(20):
        await leader.replicas[GROUP].append(batch_of(b"%d" % number), acks=QUORUM, timeout_ms=1000)
    await asyncio.sleep(1)  # the other follower applies what is committed
    for _ in range(GRACE_LOOKS):
        await keepers[leader].look()
        assert leader.groups[GROUP].log.first_index == 0
    await keepers[leader].look()
    assert leader.groups[GROUP].log.first_index > 0
    full.filesystem.capacity_bytes = None
    await cluster.settled()
    await cluster.stop()


def keeper_of(broker: ClusterNode) -> RetentionManager:
    """Retention on one broker, of a tenant that needs as little kept as may be."""
    return RetentionManager(broker.host, lambda: [cast("Tenant", Greedy(broker))])


@dataclass(frozen=True, slots=True)
class Greedy:
    """The part of a tenant that retention looks at."""

    broker: ClusterNode
    group_id = GROUP
    name = "greedy"

    @property
    def retention(self) -> RetentionLimits:
        log_start = self.broker.replicas[GROUP].machine.log_start
        return RetentionLimits(retention_bytes=0, log_start=Index(log_start.offset))


RETENTION_MS = 2_000
SEGMENT_MS = 50


async def retention_looks(cluster: ControlledCluster, seconds: float) -> None:
    """Time passes, with the usual looks of retention on all brokers."""
    ends_at = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends_at:
        await cluster.look_for_retention()
        await asyncio.sleep(0.06)


# requirement: N5
@in_virtual_time_with(ControlledCluster)
async def test_records_wait_for_consumers_and_consumers_for_records(cluster: ControlledCluster) -> None:
    await cluster.create("orders", segment_ms=SEGMENT_MS, retention_ms=RETENTION_MS)
    gateway = cluster.any.gateway
    values = [b"%d" % number for number in range(10)]
    for value in values:  # nobody reads
        await gateway.append(ORDERS, batch_of(value), acks=QUORUM, timeout_ms=5_000)
        await retention_looks(cluster, 0.1)
    found: list[bytes | None] = []
    while len(found) < len(values):
        result = await gateway.fetch(ORDERS, fetch_from(len(found)))
        found += values_of(result.data)
    assert found == values
    assert not (await gateway.fetch(ORDERS, fetch_from(10, wait_ms=100))).data
    waiting = asyncio.create_task(gateway.fetch(ORDERS, fetch_from(10, wait_ms=60_000)))
    await retention_looks(cluster, 0.5)  # nobody produces
    assert not waiting.done()
    await gateway.append(ORDERS, batch_of(b"late"), acks=QUORUM, timeout_ms=5_000)
    assert values_of((await waiting).data) == [b"late"]


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
