"""A damaged replica, its peers, and the repair between them, on disks in memory.

The peers are in states that a test chooses, without a Raft group: closed, still opening, or leading with a
log that no election would give them. Simulated brokers would reach few of these states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import HardState
from raftlog.errors import ConnectionLost, InvalidRequest
from raftlog.node.blocking import RunBlocking
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.node.group.snapshot_transfer import SnapshotService
from raftlog.node.group.view import GroupView
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import Calls, Handler
from raftlog.node.rpc_classes import Service
from raftlog.repair.repairer import Repairer
from raftlog.repair.service import NO_INDEX, SERVICE, Ask, RepairService
from raftlog.repair.target import RepairTarget
from raftlog.repair.verify import examine
from raftlog.storage.members import batch_of
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId, Index, NodeId, Term
from tests.helpers.log_files import DIRECTORY, open_log, segment, sync
from tests.helpers.storage_batches import storage_batch

GROUP = GroupId(5)


Answer = tuple[bytes, Sequence[bytes | bytearray | memoryview]]


@dataclass
class Leader:
    """An open group that leads, in the interface of the service."""

    log: SegmentedLog
    term: Term
    is_leader: bool = True
    stopped: BaseException | None = None
    commit_index: Index = NO_INDEX
    membership: Membership = NOBODY  # by the whole log
    is_rejoining: bool = False

    def stop(self, error: BaseException) -> None:
        self.stopped = error

    def membership_at(self, index: Index) -> Membership:
        """The same at every index."""
        return self.membership


@dataclass
class Net:
    """Brokers that call one another's services at once."""

    services: dict[NodeId, Handler] = field(default_factory=dict)
    snapshots: dict[NodeId, Handler] = field(default_factory=dict)
    asked: list[tuple[NodeId, Ask]] = field(default_factory=list)
    frame_limits: FrameLimits = FRAME_LIMITS


@dataclass
class Host:
    """The parts of a ``GroupHost`` that service and repairer use; its own ``rpc``."""

    node_id: NodeId
    net: Net
    groups: dict[GroupId, Leader] = field(default_factory=dict)

    @property
    def calls(self) -> Host:
        """Itself."""
        return self

    @property
    def frame_limits(self) -> FrameLimits:
        """The frame limits of the network."""
        return self.net.frame_limits

    def serve(self, service: Service, handler: Handler) -> None:
        """Offer one of the two services."""
        (self.net.services if service == SERVICE else self.net.snapshots)[self.node_id] = handler

    async def call(
        self, peer: NodeId, service: Service, head: bytes, payload: Sequence[bytes] = (), *, timeout_ms: int
    ) -> tuple[bytes, memoryview]:
        """Ask a peer."""
        if peer not in self.net.services:
            raise ConnectionLost("it is off", sent=False)
        if service != SERVICE:
            answer, data = await self.net.snapshots[peer](self.node_id, head, memoryview(b""))
            return answer, memoryview(b"".join(bytes(part) for part in data))
        self.net.asked.append((peer, msgspec.msgpack.decode(head, type=Ask)))
        answer, data = await self.net.services[peer](self.node_id, head, memoryview(b""))
        return answer, memoryview(b"".join(bytes(part) for part in data))


def log_of(*terms: int, hard_term: int = 0) -> FakeFilesystem:
    """A log with a batch of each of these terms, in segments of eight; synced and closed."""
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    for at, term in enumerate(terms):
        log.save_hard_state(HardState(Term(term), NodeId(1)))
        log.append([storage_batch(at, epoch=term)])
    log.save_hard_state(HardState(Term(max([hard_term, *terms])), None))
    sync(log)
    log.close()
    filesystem.restart()
    return filesystem


async def at_once(work: object) -> object:
    return work()  # type: ignore[operator]


class Cluster:
    """Broker 1 is damaged; others are closed replicas, or lead, or are still opening (None)."""

    def __init__(self, repair_target: FakeFilesystem, **others: FakeFilesystem | Leader | None) -> None:
        self.net = Net()
        self.filesystem = repair_target
        self.repairer = self._repairer(NodeId(1), repair_target, None)
        for name, other in others.items():
            node = NodeId(int(name.removeprefix("broker_")))
            leader = other if isinstance(other, Leader) else None
            filesystem = other if isinstance(other, FakeFilesystem) else FakeFilesystem()
            self._repairer(node, filesystem, leader, is_current=other is not None)
        self.repair_target = RepairTarget(GROUP, DIRECTORY, (NodeId(2), NodeId(3)))

    def _repairer(
        self, node: NodeId, filesystem: FakeFilesystem, leader: Leader | None, *, is_current: bool = True
    ) -> Repairer:
        host = Host(node, self.net, {} if leader is None else {GROUP: leader})
        run = cast("RunBlocking", at_once)

        def directory_of(group: GroupId) -> str | None:
            if not is_current:
                raise InvalidRequest("the metadata is not confirmed")
            return DIRECTORY if filesystem.exists(DIRECTORY) else None

        service = RepairService(cast("GroupHost", host), filesystem, run, directory_of)
        service.offer()
        if leader is not None:
            SnapshotService(cast("Calls", host), lambda: cast("Mapping[GroupId, GroupView]", host.groups))
        return Repairer(cast("GroupHost", host), filesystem, run, service)

    def repair(self) -> SegmentedLog:
        """Repair broker 1, and open its log."""
        asyncio.run(self.repairer.repair(self.repair_target))
        assert examine(self.filesystem, DIRECTORY).is_clean
        return open_log(self.filesystem)


def leads(filesystem: FakeFilesystem, term: int) -> Leader:
    return Leader(open_log(filesystem), Term(term))


def terms_in(log: SegmentedLog) -> list[int]:
    return [log.term_at(Index(at)) for at in range(log.last_index + 1)]


TERMS = [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3]


def members(*nodes: int) -> Membership:
    return Membership(frozenset(map(NodeId, nodes)))


def add_membership(filesystem: FakeFilesystem, membership: Membership, later: int) -> None:
    """Append to a closed log of ``TERMS``, whether or not its slots are intact."""
    file = filesystem.open(segment(8))
    batch = batch_of(membership, index=Index(len(TERMS) + later), term=Term(TERMS[-1]), timestamp_ms=0)
    file.write_at(file.size, bytes(batch.data))
    file.sync()
    file.close()
