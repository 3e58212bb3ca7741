"""State machines on simulated brokers: opening, repair, and compaction beside retention."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from partitions.values import QUORUM
from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.hosting.compaction import CompactionManager, _Compacted
from raftlog.hosting.hosted_replica import HostedState
from raftlog.hosting.supervisor import Supervisor
from raftlog.hosting.tenant import CompactionRules, NotYet
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.repair.verify import examine
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.durable_state import found_slots, newest_slot
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segment_rewriter import RewrittenSegment
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import GroupId, Index, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.compacting import compactor
from tests.helpers.counter import GROUP, Counter
from tests.helpers.node_cluster import NodeCluster
from tests.helpers.simulated_brokers import HostingCluster, HostingNode

SERVING = HostedState.SERVING


def flip_a_bit_of_the_log(broker: HostingNode) -> None:
    path = next(
        path for path in broker.files.paths() if path.startswith(Counter.directory) and ".log" in path
    )
    broker.files.flip_bit(path, 80)


@in_virtual_time_with(HostingCluster)
async def test_a_state_machine_counts_after_a_restart_of_all(cluster: HostingCluster) -> None:
    for number in range(1, 11):
        await cluster.leading.counter.add(number)
    await cluster.until(lambda: all(broker.counter.machine.state.total == 55 for broker in cluster))
    for node in cluster.nodes:
        await cluster.stop(node)
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until(lambda: cluster.leader is not None)
    assert await cluster.leading.counter.add(1) == 56


# requirement: M3
@in_virtual_time_with(HostingCluster)
async def test_a_damaged_log_is_repaired_from_the_peers_while_they_go_on(cluster: HostingCluster) -> None:
    for number in range(1, 11):
        await cluster.leading.counter.add(number)
    damaged = cluster.followers[0]
    states = [damaged.state]
    damaged.supervisor.subscribe(lambda: states.append(damaged.state))
    flip_a_bit_of_the_log(damaged)
    assert damaged.counter.group is not None
    damaged.counter.group.stop(LogCorrupt("a bit is flipped"))
    assert damaged.state is HostedState.UNDER_REPAIR
    assert damaged.supervisor.reason_of(GROUP) == "LogCorrupt: a bit is flipped"
    await cluster.leading.counter.add(10)
    await cluster.until(lambda: damaged.state is SERVING)
    await cluster.until(lambda: damaged.counter.machine.state.total == 65)
    assert damaged.supervisor.reason_of(GROUP) == ""
    assert examine(damaged.files, Counter.directory).is_clean
    assert states == [SERVING, HostedState.UNDER_REPAIR, SERVING]


# requirement: M3
@in_virtual_time_with(HostingCluster)
async def test_every_broker_soon_notes_how_far_its_log_is_durable(cluster: HostingCluster) -> None:
    for number in range(1, 11):
        await cluster.leading.counter.add(number)
    await cluster.until(lambda: all(broker.counter.machine.state.total == 55 for broker in cluster))
    last = cluster.leading.counter.group
    assert last is not None
    for broker in cluster:
        slots = partial(found_slots, broker.files, Counter.directory)
        await cluster.until(
            lambda slots=slots: (slot := newest_slot(slots())) and slot.state.durable_index == last.last_index
        )


# requirement: F6
@in_virtual_time_with(HostingCluster)
async def test_an_older_copy_of_a_folder_gives_no_vote(cluster: HostingCluster) -> None:
    await cluster.leading.counter.add(1)
    restored = cluster.followers[0]
    node, files = restored.node_id, restored.files
    await cluster.until(lambda: restored.counter.machine.state.total == 1)
    older = {path: data for path, data in files.image().items() if path.startswith(Counter.directory)}
    await cluster.leading.counter.add(10)
    await cluster.until(lambda: restored.counter.machine.state.total == 11)
    await restored.progress.keep()
    await cluster.stop(node)
    for path in files.paths():
        if path.startswith(Counter.directory):
            files.remove(path)
    files.load(older)
    others = [broker.node_id for broker in cluster]
    await cluster.stop(others[0])
    await cluster.start(node)
    again = cluster.brokers[node]
    await cluster.until(lambda: again.state is SERVING)
    assert again.counter.group is not None
    assert again.counter.group.is_rejoining
    noted = again.logs.progress.of(GROUP)
    await again.progress.keep()
    assert again.logs.progress.of(GROUP) == noted
    await asyncio.sleep(30)
    assert cluster.leader is None, "a majority without a vote has elected a leader"
    await cluster.start(others[0])
    rejoining = again.counter.group
    await cluster.until(lambda: not rejoining.is_rejoining)
    await cluster.until(lambda: again.counter.machine.state.total == 11)
    await again.progress.keep()
    await cluster.stop(node)
    await cluster.start(node)
    again = cluster.brokers[node]
    await cluster.until(lambda: again.state is SERVING)
    assert again.counter.group is not None
    assert not again.counter.group.is_rejoining


async def test_a_replica_whose_disk_failed_is_opened_again_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with HostingCluster() as cluster:
        failed = cluster.followers[0]
        assert failed.counter.group is not None
        failed.counter.group.stop(OSError(5, "Input/output error"))
        assert failed.state is HostedState.UNDER_REPAIR
        await cluster.leading.counter.add(3)
        await cluster.until(lambda: failed.state is SERVING)
        await cluster.until(lambda: failed.counter.machine.state.total == 3)
    assert caplog.text.count("the counter serves again") == 1


def once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception) -> Callable[[], bool]:
    """The next call raises ``error``; whether it came."""
    real, raised = getattr(owner, name), []

    def call(*arguments: object) -> object:
        if not raised:
            raised.append(error)
            raise error
        return real(*arguments)

    monkeypatch.setattr(owner, name, call)
    return lambda: bool(raised)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), OSError(12, "memory")]
)
async def test_a_replica_that_runs_out_of_memory_is_opened_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither is its group noted as broken, nor its log as damaged, nor does its process end."""
    async with HostingCluster() as cluster:
        short = cluster.followers[0]
        assert short.counter.group is not None
        came = once(monkeypatch, short.counter.machine, "apply", error)
        await cluster.leading.counter.add(3)
        await cluster.until(came)
        await cluster.until(lambda: short.state is SERVING and short.counter.machine.state.total == 3)
        assert short.fatal == []
        assert short.host.damaged_logs == 0
        assert BrokenGroups(short.files, "/data", short.host.clock).reasons == {}
    assert "is being repaired" not in caplog.text


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), OSError(12, "memory")]
)
async def test_a_log_that_there_is_no_memory_to_open_is_opened_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, errors = Counter.open_log, [error] * 3

    async def open_log(self: Counter) -> SegmentedLog:
        if errors:
            raise errors.pop()
        return await opens(self)

    async with HostingCluster() as cluster:
        node = cluster.nodes[0]
        await cluster.stop(node)
        monkeypatch.setattr(Counter, "open_log", open_log)
        broker = await cluster.start(node)
        await cluster.until(lambda: broker.supervisor.reason_of(GROUP) != "")
        assert broker.state is HostedState.OPENING
        await broker.supervisor.serving(GROUP)
        assert broker.fatal == []
        assert BrokenGroups(broker.files, "/data", broker.host.clock).reasons == {}


@pytest.mark.parametrize(
    ("owner", "name"), [(Counter, "take_part"), (ReplicaRegistry, "add"), (Supervisor, "_tell")]
)
async def test_a_replica_that_there_is_no_memory_to_open_is_opened_later(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group or the log may be open when memory ends: no second one is opened beside it."""
    logs: list[SegmentedLog] = []
    opens, does, errors = Counter.open_log, getattr(owner, name), list[Exception]()

    async def open_log(self: Counter) -> SegmentedLog:
        assert all(log._closed for log in logs)
        logs.append(await opens(self))
        return logs[-1]

    def short(*arguments: object) -> object:
        result = does(*arguments)
        if errors:
            raise errors.pop()
        return result

    async with HostingCluster() as cluster:
        node = cluster.nodes[0]
        await cluster.stop(node)
        monkeypatch.setattr(Counter, "open_log", open_log)
        monkeypatch.setattr(owner, name, short)
        errors.append(MemoryError())
        broker = await cluster.start(node)
        broker.host.duties.on_failed = lambda duty, error: None
        await cluster.until(lambda: broker.state is SERVING)
        await cluster.leading.counter.add(3)
        await cluster.until(lambda: broker.counter.machine.state.total == 3)
        assert broker.fatal == []
        assert BrokenGroups(broker.files, "/data", broker.host.clock).reasons == {}


@in_virtual_time_with(lambda: HostingCluster(brokers=1))
async def test_damage_that_no_peer_can_repair_calls_an_operator(cluster: HostingCluster) -> None:
    alone = cluster.leading
    for _ in range(3):
        await alone.counter.add(1)
    flip_a_bit_of_the_log(alone)
    assert alone.counter.group is not None
    alone.counter.group.stop(LogCorrupt("a bit is flipped"))
    await cluster.until(lambda: alone.state is HostedState.NEEDS_OPERATOR)
    assert alone.supervisor.counts == {HostedState.NEEDS_OPERATOR: 1}
    assert alone.supervisor.reason_of(GROUP)


# A group that breaks an invariant ends its broker once; the next start stops and reports the group.
@in_virtual_time_with(HostingCluster)
async def test_a_group_that_has_broken_an_invariant_is_not_opened(cluster: HostingCluster) -> None:
    node = cluster.nodes[0]
    await cluster.stop(node)
    clock = cluster.brokers[NodeId(2)].host.clock
    BrokenGroups(cluster.files[node], "/data", clock).note(GROUP, InvariantViolated("a test says so"))
    broker = await cluster.start(node)
    await cluster.until(lambda: broker.state is HostedState.NEEDS_OPERATOR)
    assert "a test says so" in broker.supervisor.reason_of(GROUP)
    assert GROUP not in broker.host.groups


@in_virtual_time_with(HostingCluster)
async def test_a_log_that_found_no_room_is_opened_when_there_is_some(cluster: HostingCluster) -> None:
    node = cluster.nodes[0]
    await cluster.stop(node)
    disk = cluster.files[node]
    disk.remove_tree(Counter.directory)
    disk.capacity_bytes = disk.used_bytes
    broker = await cluster.start(node)
    await cluster.until(lambda: broker.state is HostedState.DISK_FULL)
    with pytest.raises(OSError, match="no room"):
        await broker.supervisor.serving(GROUP)
    disk.capacity_bytes = None
    await cluster.until(lambda: broker.state is SERVING)
    await broker.supervisor.serving(GROUP)


async def test_a_tenant_that_waits_is_opened_once_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = Counter.open_log
    may_open = False

    async def open_log(self: Counter) -> SegmentedLog:
        if not may_open:
            raise NotYet("a test says so")
        return await opens(self)

    async with HostingCluster() as cluster:
        node = cluster.nodes[0]
        await cluster.stop(node)
        monkeypatch.setattr(Counter, "open_log", open_log)
        broker = await cluster.start(node)
        await cluster.until(lambda: "a test says so" in broker.supervisor.reason_of(GROUP))
        assert broker.state is HostedState.OPENING
        assert broker.supervisor.is_opening
        may_open = True
        broker.supervisor.look_again()
        await broker.supervisor.serving(GROUP)
        assert broker.supervisor.reason_of(GROUP) == ""


@in_virtual_time_with(HostingCluster)
async def test_a_log_is_trimmed_where_a_snapshot_covers_it(cluster: HostingCluster) -> None:
    late = cluster.nodes[-1]
    await cluster.stop(late)
    await cluster.until(lambda: cluster.leader is not None)
    for _ in range(1500):
        await cluster.leading.counter.add(1)
    leader = cluster.leading
    assert leader.counter.group is not None
    await leader.retention.look()
    assert leader.counter.group.log.first_index > 100
    assert leader.counter.group.log.size_bytes < Counter.retention.log_bytes_max
    broker = await cluster.start(late)
    await cluster.until(lambda: broker.counter.machine.state.total == 1500)


@in_virtual_time_with(HostingCluster)
async def test_a_released_replica_is_closed_and_may_be_hosted_again(cluster: HostingCluster) -> None:
    broker = cluster.followers[0]
    await broker.supervisor.release(GROUP)
    await broker.supervisor.release(GROUP)  # nothing happens
    assert broker.state is None
    assert GROUP not in broker.host.groups
    assert broker.counter.group is None
    await cluster.leading.counter.add(4)
    broker.supervisor.host(broker.counter)
    await cluster.until(lambda: broker.counter.machine.state.total == 4)


@in_virtual_time_with(HostingCluster)
async def test_a_replica_released_during_its_repair_stays_closed(cluster: HostingCluster) -> None:
    broker = cluster.followers[0]
    assert broker.counter.group is not None
    flip_a_bit_of_the_log(broker)
    broker.counter.group.stop(LogCorrupt("a bit is flipped"))
    scheduler = broker.supervisor.scheduler
    assert scheduler is not None
    await cluster.until(lambda: scheduler.under_repair == 1)
    await broker.supervisor.release(GROUP)
    assert scheduler.under_repair == 0
    assert broker.supervisor.failed() == []
    await cluster.leading.counter.add(4)
    assert broker.counter.machine.state.total == 0


PARTITION = GroupId(1)
RULES = CompactionRules(frozenset)
Result = TypeVar("Result")


@in_virtual_time_with(
    lambda: NodeCluster(1, log_settings=LogSettings(segment_bytes=300, index_interval_bytes=100))
)
async def test_retention_that_is_faster_is_no_damage(cluster: NodeCluster) -> None:
    node = cluster.leading()
    group = node.groups[PARTITION]
    log = group.log
    assert isinstance(log, SegmentedLog)
    for number in range(40):
        batch = build_batch([Record(b"value", b"%d" % (number % 2))], codec=Codec.NONE, timestamp_ms=1)
        await node.replicas[PARTITION].append(batch, acks=QUORUM, timeout_ms=1000)
    deleting: list[asyncio.Task[Index]] = []

    async def run(step: Callable[[], Result]) -> Result:
        """When the first segment is rewritten, retention asks first for its change of the log."""
        with node.on_a_thread():
            found = step()
        if isinstance(found, RewrittenSegment) and not deleting:
            deleting.append(asyncio.create_task(group.truncate_prefix(Index(log.closed_segments[-1].base))))
            await asyncio.sleep(0)
        return found

    manager = CompactionManager(node.host, node.filesystem, run, tuple, 1 << 40)
    known = _Compacted(group, log, log.first_index, 1)
    first = log.first_index
    work = compactor(node.filesystem, log)
    assert not await manager._carry_out(known, work, RULES)
    assert await deleting[0] > first
    assert group.stopped is None
    await cluster.settled()
    work = compactor(node.filesystem, log)
    assert await manager._carry_out(known, work, RULES)
