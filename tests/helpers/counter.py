"""A minimal tenant: a replicated counter.

``docs/state-machines.md`` explains this file. Leaves to others: opening,
replication, snapshots and repair (``raftlog.hosting``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from raftlog.core.membership import Membership
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.tenant import SnapshotRetention
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.records.batch import Batch
from raftlog.records.builder import batch_of_command
from raftlog.records.reader import read_records
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import GroupId, NodeId
from tests.helpers.quiet_listener import QuietListener

GROUP = GroupId(7)


class Add(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Add a number."""

    number: int


_COMMANDS = msgspec.msgpack.Decoder(Add)


class State(msgspec.Struct, frozen=True, array_like=True):
    """The state of the counter."""

    total: int = 0


class CounterMachine:
    """A ``StateMachine``: state and command in, state and reply out."""

    def __init__(self) -> None:
        self.state = State()

    def apply(self, entry: Batch) -> int:
        """The reply is the total."""
        if not entry.header.is_control:  # a leader change record, or a change of the membership
            for record in read_records(entry):
                command = _COMMANDS.decode(record.value or b"")
                self.state = State(self.state.total + command.number)
        return self.state.total

    def snapshot(self) -> bytes:
        """A released format would begin with a version."""
        return msgspec.msgpack.encode(self.state)

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """An empty snapshot is a new counter."""
        state = msgspec.msgpack.decode(snapshot, type=State) if snapshot else State()
        return lambda: setattr(self, "state", state)


class Listener(QuietListener):
    """The supervisor handles a stopped replica."""

    def replica_stopped(self, error: BaseException) -> None:
        """Nothing to do."""


class Counter:
    """A ``Tenant``: one replica of the counter on one broker."""

    group_id = GROUP
    name = "the counter"
    directory = "/data/counter"
    is_leaving = False
    retention = SnapshotRetention(log_bytes_max=64 << 10, entries_kept=10)
    compaction = None

    def __init__(self, host: GroupHost, opener: LogOpener, brokers: Iterable[NodeId]) -> None:
        self._host = host
        self._opener = opener
        self._members = Membership(frozenset(brokers))
        self.peers = tuple(sorted(self._members.voters - {host.node_id}))
        self.machine = CounterMachine()
        self.group: RaftGroup[int] | None = None

    async def open_log(self) -> SegmentedLog:
        """Small segments, so that there is something to delete soon."""
        settings = LogSettings(segment_bytes=16384)
        return self._opener.open(
            GROUP, self.directory, settings, is_rejoining=False, is_only=lambda: not self.peers
        )

    def take_part(self, log: SegmentedLog) -> None:
        """One machine for each opening: its state is in the snapshot and the log."""
        self.machine = CounterMachine()
        self.group = self._host.open_group(GROUP, log, self.machine, self._members, Listener())

    async def leave(self) -> None:
        """The counter is not used any more."""
        self.group = None

    async def add(self, number: int) -> int:
        """The total afterwards, committed. Raises the errors of ``RaftGroup.propose``."""
        assert self.group is not None
        command = batch_of_command(msgspec.msgpack.encode(Add(number)), self._host.clock.wall_ms())
        return await self.group.propose([command]).outcome
