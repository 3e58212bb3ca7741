"""Brokers with Raft groups on logs that can lose power, links with faults, in virtual time.

Real ``GroupHost``, ``SegmentedLog`` and ``PartitionReplica``; only disk, network and time are simulated.
Groups are opened without ``raftlog.hosting``: these are tests of the layer below it, and a group that fails
stays as it is, where a supervisor would close it.
Every entry that a member applies, in any incarnation, is compared at once with the entries that others have
applied at the same index.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from partitions.metadata.topic_config import complete
from partitions.replica.machine import PartitionMachine
from partitions.replica.replica import PartitionReplica
from partitions.values import QUORUM
from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import Role
from raftlog.node.flusher import RunSyncs
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.records.batch import Batch, check_batch, split_batches
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import GroupId, Index, NodeId, Term, TopicPartition
from tests.helpers.fake_transport import FakeTransport
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import VirtualClock

FIRST_GROUP = GroupId(1)
LOG_SETTINGS = LogSettings(segment_bytes=16384, index_interval_bytes=512)


@dataclass
class Applied:
    """The committed batch at each index of one group, the same for all members."""

    batches: dict[int, tuple[int, int, int]]  # base offset -> last offset, term, checksum

    def check(self, node: NodeId, batch: Batch, before: int) -> None:
        """A member applies this after everything up to ``before``."""
        header = batch.header
        assert header.base_offset == before + 1, f"{node} applied {header.base_offset} after {before}"
        if not header.is_whole:  # compacted; what is left of it may differ from member to member
            return
        here = (header.last_offset, header.leader_epoch, header.crc)
        known = self.batches.setdefault(header.base_offset, here)
        assert known == here, f"{node} applied {here} at {header.base_offset}, another member {known}"


class CheckedMachine:
    """A partition's machine that compares its entries with those of all others."""

    def __init__(self, node: NodeId, machine: PartitionMachine, applied: Applied, before: Index) -> None:
        self._node = node
        self._machine = machine
        self._applied = applied
        self._before: Index | None = before
        self._is_open = False

    def apply(self, entry: Batch) -> None:
        before = self._before if self._before is not None else Index(entry.base_offset - 1)
        self._applied.check(self._node, entry, before)
        self._before = Index(entry.last_offset)
        self._machine.apply(entry)

    def snapshot(self) -> bytes:
        return self._machine.snapshot()

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Passed on. Later entries may begin anywhere after it."""
        passed_on = self._machine.restoring(snapshot)

        def become() -> None:
            self._before = self._before if not self._is_open else None
            self._is_open = True
            passed_on()

        return become


class ClusterNode:
    """One broker; ``life`` counts its processes."""

    def __init__(self, cluster: NodeCluster, node_id: NodeId) -> None:
        self.node_id = node_id
        self.filesystem = FakeFilesystem()
        self.filesystem.on_wait = self._waits
        self.is_on_a_thread = False  # what happens now would do so on another thread than the loop's
        self.life = 0
        self.is_up = False
        self.has_lost_its_disk = False
        self.sync_s = 0.002
        self.disk = asyncio.Event()  # cleared while the disk does nothing
        self.disk.set()
        self.has_room = True
        self.fatal: list[BaseException] = []
        self.stopped: dict[GroupId, BaseException] = {}
        self.heard: list[tuple[GroupId, Membership, bool]] = []
        self.removed: list[GroupId] = []
        self.replicas: dict[GroupId, PartitionReplica] = {}
        self.groups: dict[GroupId, RaftGroup[None]] = {}
        self.transport: FakeTransport
        self.host: GroupHost
        self._cluster = cluster

    async def start(self) -> None:
        """The next incarnation on the same disk."""
        cluster = self._cluster
        self.life += 1
        self.is_up = True
        self.transport = cluster.network.member(self.node_id, cluster.nodes)
        self.host = GroupHost(
            self.node_id,
            self.transport,
            VirtualClock(),
            random.Random(f"{cluster.seed} {self.node_id} {self.life}"),
            self._syncs(self.life),
            on_fatal=self.fatal.append,
            has_room=lambda: self.has_room,
            settings=cluster.settings,
        )
        await self.host.start()
        self.replicas.clear()
        self.groups.clear()
        self.stopped.clear()
        for group_id in cluster.group_ids:
            self._open(group_id)

    def _open(self, group_id: GroupId) -> None:
        cluster = self._cluster
        with self.on_a_thread():
            log = SegmentedLog.open(
                self.filesystem,
                f"/group-{group_id}",
                cluster.log_settings,
                self.host.clock,
                is_rejoining=self.has_lost_its_disk,
            )
        replica = PartitionReplica(
            TopicPartition("t", group_id), cluster.nodes, complete({}, len(cluster.nodes)), self.host.clock
        )
        checkpoint = log.load_checkpoint()
        before = Index(-1) if checkpoint is None else checkpoint[0]
        machine = CheckedMachine(self.node_id, replica.machine, cluster.applied[group_id], before)
        group = self.host.open_group(
            group_id,
            log,
            machine,
            cluster.birth if self.node_id in cluster.birth.voters else NOBODY,
            Listener(self, group_id, replica),
            campaign_first=cluster.nodes[group_id % len(cluster.birth.voters)] == self.node_id,
            announces_commits=cluster.announces_commits,
        )
        replica.attach(group)
        self.replicas[group_id] = replica
        self.groups[group_id] = group

    def crash(self, power_lost_by: random.Random | None = None) -> None:
        """The process crashes; with a generator the machine loses power, too."""
        self.is_up = False
        self.life += 1
        self.host.fail(ProcessDied())
        if self.host._tick_handle is not None:
            self.host._tick_handle.cancel()
        self.disk.set()
        self.transport._is_running = False
        self._cluster.network.leave(self.transport)
        for replica in self.replicas.values():
            replica.group._lose_leadership()
        if power_lost_by is None:
            self.filesystem.restart()
        else:
            self.filesystem.lose_power(power_lost_by)
        self.fatal = [error for error in self.fatal if not isinstance(error, ProcessDied)]

    def lose_disk(self) -> None:
        """A stopped broker gets an empty disk: its replicas will rejoin."""
        self.filesystem = FakeFilesystem()
        self.filesystem.on_wait = self._waits
        self.has_lost_its_disk = True

    async def stop(self) -> None:
        """A clean stop."""
        await self.host.transfer_leaderships()
        await self.host.stop()
        self.is_up = False

    @contextmanager
    def on_a_thread(self) -> Iterator[None]:
        """The block counts as running on another thread than the loop's."""
        self.is_on_a_thread = True
        try:
            yield
        finally:
            self.is_on_a_thread = False

    def _waits(self, operation: str, path: str) -> None:
        assert self.is_on_a_thread, f"the event loop waits for the disk: {operation} {path}"

    def _syncs(self, life: int) -> RunSyncs:
        async def run(syncs: Sequence[DiskWork]) -> list[OSError | None]:
            errors: list[OSError | None] = []
            for sync in syncs:
                await asyncio.sleep(self.sync_s)
                await self.disk.wait()
                try:
                    if life != self.life:
                        await self._cluster.never  # nobody is there any more
                    with self.on_a_thread():
                        sync.run()
                    errors.append(None)
                except OSError as error:
                    errors.append(error)
            return errors

        return in_a_task(run)


class ProcessDied(BaseException):
    """The end of a process that was killed on purpose."""


class Listener:
    """The replica's listener, which also records the error that stopped it."""

    def __init__(self, node: ClusterNode, group_id: GroupId, replica: PartitionReplica) -> None:
        self._node = node
        self._group_id = group_id
        self._replica = replica

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        self._replica.role_changed(role, term, leader)

    def commit_advanced(self, commit_index: Index) -> None:
        self._replica.commit_advanced(commit_index)

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        self._node.heard.append((self._group_id, membership, is_committed))
        self._replica.membership_changed(membership, is_committed)

    def removed(self) -> None:
        self._node.removed.append(self._group_id)
        self._replica.removed()

    def replica_stopped(self, error: BaseException) -> None:
        self._node.stopped[self._group_id] = error
        self._replica.replica_stopped(error)


class NodeCluster:
    """All brokers of one test; use it with ``async with``. Create it inside ``run_virtual``."""

    def __init__(
        self,
        seed: int = 0,
        *,
        nodes: int = 3,
        voters: int | None = None,
        groups: int = 1,
        announces_commits: bool = False,
        settings: HostSettings | None = None,
        log_settings: LogSettings = LOG_SETTINGS,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"cluster {seed}")
        self.settings = settings or HostSettings()
        self.log_settings = log_settings
        self.announces_commits = announces_commits
        self.network = LoopNetwork(random.Random(f"network {seed}"))
        self.nodes = [NodeId(number) for number in range(1, nodes + 1)]
        self.birth = Membership(frozenset(self.nodes[:voters]))  # the others' replicas are added later
        self.group_ids = [GroupId(number) for number in range(FIRST_GROUP, FIRST_GROUP + groups)]
        self.applied = {group_id: Applied({}) for group_id in self.group_ids}
        self.never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.brokers = {node: ClusterNode(self, node) for node in self.nodes}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.stop()

    async def start(self) -> None:
        """Start all brokers; wait until every group has a leader."""
        for broker in self.brokers.values():
            await broker.start()
        await self.settled()

    async def stop(self) -> None:
        """The end of the test: no unexpected error may have occurred."""
        for broker in self.brokers.values():
            assert broker.fatal == []
            if broker.is_up:
                broker.disk.set()
                await broker.host.stop()
                broker.is_up = False
        self.never.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # those of lives that were cut off
            task.cancel()
        await asyncio.sleep(0)

    @property
    def up(self) -> list[ClusterNode]:
        """Running brokers."""
        return [broker for broker in self.brokers.values() if broker.is_up]

    def leader(self, group_id: GroupId = FIRST_GROUP) -> ClusterNode | None:
        """The broker that leads in the newest term and is ready."""
        leading = [broker for broker in self.up if broker.groups[group_id].is_ready]
        return max(leading, key=lambda broker: broker.groups[group_id].term, default=None)

    def leading(self, group_id: GroupId = FIRST_GROUP) -> ClusterNode:
        """The leader, which must be there."""
        found = self.leader(group_id)
        assert found is not None
        return found

    def followers(self, group_id: GroupId = FIRST_GROUP) -> list[ClusterNode]:
        """All running brokers but the leader."""
        leader = self.leading(group_id)
        return [broker for broker in self.up if broker is not leader]

    async def settled(self, within_s: float = 30.0) -> None:
        """Return once every group has a leader that all running members follow, with equal logs."""
        await self.until(lambda: all(map(self.is_settled, self.group_ids)), within_s)

    def is_settled(self, group_id: GroupId) -> bool:
        """Whether all running members agree and have applied everything."""
        leader = self.leader(group_id)
        if leader is None:
            return False
        members = leader.groups[group_id].membership.members
        last = leader.groups[group_id].last_index
        return all(
            group.leader == leader.node_id
            and group.last_index == last
            and group.durable_index == last
            and group.applied_index == last
            for group in (broker.groups[group_id] for broker in self.up if broker.node_id in members)
        )

    async def leave_behind(self, follower: ClusterNode) -> None:
        """Stop a follower and delete entries that it lacks: it will need a snapshot."""
        follower.crash()
        leader = self.leading()
        for number in range(20):
            batch = batch_of(b"%d" % number)
            await leader.replicas[FIRST_GROUP].append(batch, acks=QUORUM, timeout_ms=1000)
        await self.settled()
        for broker in self.up:
            assert await broker.groups[FIRST_GROUP].truncate_prefix(Index(15)) > 0

    async def depose(self) -> ClusterNode:
        """Cut the leader off while it appends three batches; return it once it follows nobody.

        Another broker leads by then, with a batch of its own: the tail of the first is cut when links heal.
        """
        old, others = self.leading(), self.followers()
        await old.replicas[FIRST_GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
        for other in others:
            self.network.cut_both(old.node_id, other.node_id)
        for value in (b"1", b"2", b"3"):
            validated = old.replicas[FIRST_GROUP]._rules.validated(batch_of(value))
            old.groups[FIRST_GROUP].propose(validated)
        await self.until(lambda: any(other.groups[FIRST_GROUP].is_ready for other in others))
        leader = next(other for other in others if other.groups[FIRST_GROUP].is_ready)
        await leader.replicas[FIRST_GROUP].append(batch_of(b"new"), acks=QUORUM, timeout_ms=1000)
        await self.until(lambda: not old.groups[FIRST_GROUP].is_leader)
        return old

    async def quiescent(self, within_s: float = 30.0) -> None:
        """Return once all groups of all running brokers are quiescent."""
        await self.until(
            lambda: all(group.is_quiescent for broker in self.up for group in broker.groups.values()),
            within_s,
        )

    async def until(self, holds: Callable[[], bool], within_s: float = 30.0) -> float:
        """Wait for a condition; return the seconds it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not holds():
            assert loop.time() - began < within_s, f"not within {within_s} s\n{self.describe()}"
            await asyncio.sleep(0.005)
        return loop.time() - began

    def describe(self) -> str:
        """Every member, for messages of failed tests."""
        return "\n".join(
            f"broker {broker.node_id} life {broker.life} group {group.group_id}: {group.status()} "
            f"applied {group.applied_index} stopped {group.stopped!r}"
            for broker in self.up
            for group in broker.groups.values()
        )

    def logs(self, group_id: GroupId) -> list[list[Batch]]:
        """The whole log of each running member, checked."""
        return [_batches(broker.groups[group_id]) for broker in self.up]


def _batches(group: RaftGroup[None]) -> list[Batch]:
    log, found = group.log, []
    at = log.first_index
    while at <= log.last_index:
        part = log.read(at, log.last_index, bytes_max=1 << 20)
        found += split_batches(part.read())
        at = Index(part.last + 1)
    for batch in found:
        check_batch(batch)
    return found
