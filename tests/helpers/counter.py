"""A minimal tenant: a replicated counter that also ticks.

``docs/state-machines.md`` explains this file. Leaves to others: opening,
replication, snapshots, repair and timers (``raftlog.hosting``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from raftlog.core.membership import Membership
from raftlog.hosting.effects import CancelTimer, Effect, LeaderEffects, SetTimer
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
TICK = "tick"


class Add(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Add a number."""

    number: int


class TickEvery(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tick from now on; 0 stops it."""

    every_ms: int


class Tick(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The tick of this time; a late or repeated one changes nothing."""

    at_ms: int


Command = Add | TickEvery | Tick
_COMMANDS = msgspec.msgpack.Decoder(Command)


class State(msgspec.Struct, frozen=True, array_like=True):
    """The state of the counter."""

    total: int = 0
    ticks: int = 0
    every_ms: int = 0
    next_ms: int = 0


class CounterMachine:
    """An ``EffectfulMachine``: state and command in, state and effects out."""

    def __init__(self) -> None:
        self.state = State()

    def apply(self, entry: Batch) -> tuple[int, Sequence[Effect]]:
        """The reply is the total."""
        if entry.header.is_control:  # a leader change record, or a change of the membership
            return self.state.total, ()
        effects: Sequence[Effect] = ()
        for record in read_records(entry):
            effects = self._carry_out(_COMMANDS.decode(record.value or b""), record.timestamp_ms)
        return self.state.total, effects

    def _carry_out(self, command: Command, now_ms: int) -> Sequence[Effect]:
        total, ticks, every_ms, next_ms = msgspec.structs.astuple(self.state)
        match command:
            case Add(number):
                self.state = State(total + number, ticks, every_ms, next_ms)
                return ()
            case TickEvery(every_ms):
                self.state = State(total, ticks, every_ms, now_ms + every_ms)
            case Tick(at_ms) if at_ms == next_ms and every_ms:
                self.state = State(total, ticks + 1, every_ms, next_ms + every_ms)
            case _:
                return ()
        return [*self.effects()] or [CancelTimer(TICK)]

    def effects(self) -> Iterable[Effect]:
        """The next tick."""
        if self.state.every_ms:
            next_ms = self.state.next_ms
            yield SetTimer(TICK, next_ms, msgspec.msgpack.encode(Tick(next_ms)))

    def snapshot(self) -> bytes:
        """A released format would begin with a version."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """An empty snapshot is a new counter."""
        self.state = msgspec.msgpack.decode(snapshot, type=State) if snapshot else State()


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
        self.effects: LeaderEffects[int] | None = None
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
        self.effects = effects = LeaderEffects(self.machine, Listener(), self._host.clock)
        self.group = self._host.open_group(GROUP, log, effects, self._members, effects)
        effects.attach(self.group)

    async def leave(self) -> None:
        """The counter is not used any more."""
        self.group = None

    async def add(self, number: int) -> int:
        """The total afterwards, committed. Raises the errors of ``RaftGroup.propose``."""
        assert self.group is not None
        command = batch_of_command(msgspec.msgpack.encode(Add(number)), self._host.clock.wall_ms())
        return await self.group.propose([command]).outcome

    async def tick_every(self, every_ms: int) -> None:
        """Tick from now on; 0 stops it."""
        assert self.group is not None
        command = batch_of_command(msgspec.msgpack.encode(TickEvery(every_ms)), self._host.clock.wall_ms())
        await self.group.propose([command]).outcome
