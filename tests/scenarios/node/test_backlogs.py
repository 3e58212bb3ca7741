"""What a crash left to apply is applied in slices: the event loop has other work to do."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest

from raftlog.node.group.applier import BATCH_BYTES, READ_BYTES, SLICE_BYTES
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.batch import Batch, split_batches
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import Index
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.node_cluster import CheckedMachine, ClusterNode, Listener, NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import VirtualLoop

GROUPS = 3
SLICE = SLICE_BYTES // BATCH_BYTES  # small batches
BATCHES = 20 * SLICE
ONE_SEGMENT = LogSettings(segment_bytes=64 << 20, index_interval_bytes=64 << 10)


async def filled(nodes: int) -> NodeCluster:
    """A cluster whose groups have so many small batches, and no state that covers any of them."""
    cluster = NodeCluster(nodes=nodes, groups=GROUPS, log_settings=ONE_SEGMENT)
    await cluster.start()
    for group_id in cluster.group_ids:
        group = cluster.leading(group_id).groups[group_id]
        for _ in range(0, BATCHES, 100):
            group.propose(split_batches(100 * batch_of(b"v")))
    await cluster.settled()
    return cluster


async def restarted(
    cluster: NodeCluster, broker: ClusterNode, patch: pytest.MonkeyPatch
) -> list[Counter[int]]:
    """Kill the broker and start it again: what each turn of the loop applied, in batches by machine."""
    broker.crash()
    turns: dict[int, Counter[int]] = defaultdict(Counter)
    apply = CheckedMachine.apply

    def counted(machine: CheckedMachine, entry: Batch) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        turns[loop.turns][id(machine)] += 1
        apply(machine, entry)

    with patch.context() as context:
        context.setattr(CheckedMachine, "apply", counted)
        await broker.start()
        await cluster.until(lambda: all(group.applied_index >= BATCHES for group in broker.groups.values()))
    return list(turns.values())


# requirement: ST4
@in_virtual_time
async def test_a_backlog_is_applied_one_slice_of_one_group_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    most = SLICE + READ_BYTES // len(batch_of(b"v"))
    turns = await restarted(cluster, broker, monkeypatch)
    assert max(count for turn in turns for count in turn.values()) <= most
    assert max(map(len, turns)) == 1
    await cluster.settled()
    await cluster.stop()


async def in_its_backlog(broker: ClusterNode, patch: pytest.MonkeyPatch) -> RaftGroup[None]:
    """Kill the broker and start it again, up to the first slice of what a group has to apply."""
    broker.crash()
    begun, apply = asyncio.Event(), CheckedMachine.apply

    def noted(machine: CheckedMachine, entry: Batch) -> None:
        begun.set()
        apply(machine, entry)

    with patch.context() as context:
        context.setattr(CheckedMachine, "apply", noted)
        await broker.start()
        await begun.wait()
    (group,) = (group for group in broker.groups.values() if group.applied_index >= 0)
    assert 0 < group.applied_index < BATCHES
    return group


# requirement: RP4
@in_virtual_time
async def test_reads_are_confirmed_when_the_backlog_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    assert group.is_leader
    assert group.commit_index >= BATCHES
    index = await group.confirm_read()
    assert index >= BATCHES
    assert group.applied_index >= index
    await cluster.settled()
    await cluster.stop()


# requirement: RP4
@in_virtual_time
async def test_a_leader_is_ready_when_its_backlog_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    advanced, tell = [], Listener.commit_advanced

    def noted(listener: Listener, commit_index: Index) -> None:
        group = broker.groups[listener._group_id]
        advanced.append((commit_index, group.applied_index))
        tell(listener, commit_index)

    monkeypatch.setattr(Listener, "commit_advanced", noted)
    group = await in_its_backlog(broker, monkeypatch)
    assert not group.is_ready
    await group.ready()
    assert group.applied_index >= BATCHES
    assert advanced
    assert all(told <= applied for told, applied in advanced), "the table holds what the listener hears of"
    await cluster.settled()
    await cluster.stop()


# requirement: ST4
@in_virtual_time
async def test_news_does_not_hasten_the_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    applied = group.applied_index
    for _ in range(5):
        group.propose(split_batches(batch_of(b"new")))
        group.drain()
    assert group.applied_index == applied
    await cluster.settled()
    assert group.applied_index >= BATCHES + 5
    await cluster.stop()


# requirement: ST2
@in_virtual_time
async def test_a_replica_that_closes_in_its_backlog_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    applied = group.applied_index
    await broker.host.stop()
    broker.is_up = False
    await broker.start()
    assert broker.groups[group.group_id].applied_index >= applied
    await cluster.settled()
    await cluster.stop()


# requirement: ST4
@in_virtual_time
async def test_a_backlog_waits_for_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    broker.filesystem.fails_open = lambda path: path.endswith(".log")
    for _ in range(GROUPS):
        broker.filesystem.held.make_room()
    await asyncio.sleep(30)
    applied = group.applied_index
    assert applied < BATCHES
    assert group.stopped is None
    assert not group.is_quiescent
    assert group.group_id in broker.host._awake
    broker.filesystem.fails_open = lambda path: False
    await cluster.settled()
    assert group.applied_index >= BATCHES
    await cluster.stop()
