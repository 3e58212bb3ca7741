"""Compacts the hosted logs, one after the other.

Decides: when a round of compaction begins, how fast it reads, and when it is given up. Leaves to others:
which records stay (``raftlog.storage.compaction``), the work itself (``raftlog.storage.compactor``),
replacing a segment in a safe order (the log), and when tombstones may be removed (``tombstones``).

The clean part of a log is known in memory only: after a start, the first round reads all closed segments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

import msgspec

from raftlog.errors import InvalidRequest, LogCorrupt, RaftlogError
from raftlog.hosting.tenant import CompactionRules, Tenant
from raftlog.hosting.tombstones import Agreement, Clean, old_enough
from raftlog.node.blocking import RunBlocking
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import handler_of
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.compaction import NO_TOMBSTONE, is_due
from raftlog.storage.compactor import Compactor
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment_rewriter import RewrittenSegment
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, Index, NodeId, Term

_log = logging.getLogger("raftlog.hosting")


SERVICE: Final = Service("compaction", CallClass.REPLICAS)
ASK_TIMEOUT_MS: Final = 5000


class _Ask(msgspec.Struct, frozen=True, array_like=True):
    group_id: GroupId
    tombstones_end: int  # tombstones below it are not needed, according to the leader


@dataclass(slots=True)
class CompactionCounts:
    """Counters of compaction, for metrics and tests."""

    bytes_read: int = 0
    records_removed: int = 0
    questions: int = 0  # requests to members, about tombstones


@dataclass(slots=True)
class _Compacted:
    """One serving replica, and the offset up to which its log is clean."""

    group: RaftGroup[object]
    log: SegmentedLog
    clean_end: Index
    opening: int
    agreement: tuple[Term, Agreement] = field(
        default_factory=lambda: (Term(-1), Agreement())
    )  # of the term in which this replica leads
    tombstones_end: int = 0  # tombstones below it are no longer needed
    tombstones_told: int = 0  # all members have received this end from this replica
    oldest_tombstone: int = NO_TOMBSTONE  # below ``clean_end``

    def compactable(self, rules: CompactionRules) -> list[ClosedSegment]:
        """The closed segments that may be compacted: the state machine must have applied all of their
        entries.

        Otherwise it would not know which headers it needs.
        """
        end = min(self.group.applied_index + 1, rules.last_stable_offset)
        return [segment for segment in self.log.compactable_segments if segment.last < end]


@dataclass(slots=True)
class CompactionManager:
    """Compaction on one broker. All methods belong to the event loop's thread."""

    host: GroupHost
    filesystem: Filesystem
    run_blocking: RunBlocking
    tenants: Callable[[], Iterable[Tenant]]
    bytes_per_s: int
    counts: CompactionCounts = field(default_factory=CompactionCounts)
    _logs: dict[GroupId, _Compacted] = field(default_factory=dict)
    _openings: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._openings = count(self.host.clock.wall_ms() << 20)  # other numbers in each process
        self.host.calls.serve(SERVICE, handler_of(_Ask, self._serve))

    async def run(self, interval_ms: int) -> None:
        """Compact due logs at intervals, until cancelled. With a rate of 0, return at once."""
        while self.bytes_per_s:
            await asyncio.sleep(interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Compact all logs that are dirty enough, or that have tombstones which may now be removed."""
        before, self._logs = self._logs, {}
        for tenant in list(self.tenants()):
            rules, group = tenant.compaction, self.host.groups.get(tenant.group_id)
            if rules is None or group is None or group.stopped is not None:
                continue
            assert isinstance(group.log, SegmentedLog)
            known = before.get(group.group_id)
            if known is None or known.log is not group.log:
                known = _Compacted(group, group.log, group.log.first_index, next(self._openings))
            self._logs[group.group_id] = known
            with self.host.blames(group.group_id), self.host.duties.step(f"compaction of {tenant.name}"):
                if group.is_ready:
                    await self._agree(known, rules)
                await self._look_at(known, rules)
            await asyncio.sleep(0)

    async def _look_at(self, known: _Compacted, rules: CompactionRules) -> None:
        group, log = known.group, known.log
        while group.stopped is None:
            known.clean_end = Index(max(known.clean_end, log.first_index))
            segments = known.compactable(rules)
            if not self._has_room(log.directory, segments):
                return
            has_old_tombstones = known.oldest_tombstone < known.tombstones_end
            if not has_old_tombstones and not is_due(segments, known.clean_end, rules.dirty_ratio_min):
                return
            work = Compactor(
                self.filesystem,
                log.directory,
                segments,
                log.terms(),
                known.clean_end,
                headers_kept=rules.headers_needed(),
                tombstones_end=known.tombstones_end,
                aborted=rules.aborted(),
                joined_bytes_max=log.segment_bytes if rules.joins_segments and self.host.has_room() else 0,
                old_end=old_enough(segments, self.host.clock.trusted_ms(), rules.delete_retention_ms),
            )
            if not await self._carry_out(known, work, rules):
                return
            known.clean_end, known.oldest_tombstone = work.clean_end, work.oldest_tombstone

    def _has_room(self, directory: str, segments: Sequence[ClosedSegment]) -> bool:
        """Whether the disk has room for the files of a round.

        Each file replaces its segment before the next file is written. Compaction frees room, so it may use
        the reserve of the disk, but at most half of the free space.
        """
        largest_bytes = max((segment.size_bytes for segment in segments), default=0)
        return self.host.has_room() or self.filesystem.free_bytes(directory) > 2 * largest_bytes

    async def _carry_out(self, known: _Compacted, work: Compactor, rules: CompactionRules) -> bool:
        """Run one round; return whether it was completed. Faster retention or a snapshot ends it early.

        A saved state may contain records that the log no longer has. If so, the log counts as clean only once
        no older state is left: a start from an older state, without the tombstones, would restore deleted
        records.
        """
        group, log = known.group, known.log
        removals = log.removals
        try:
            while (step := await self.run_blocking(work.step)) is not None:
                if log.removals != removals or group.stopped is not None:
                    break
                if isinstance(step, RewrittenSegment):
                    await group.change_log(partial(log.replace_change, step))
                    removals += 1  # another number if retention or a snapshot was faster
                else:
                    self.counts.bytes_read += step
                    await asyncio.sleep(step / self.bytes_per_s if self.bytes_per_s else 0)
            if step is None and rules.state_has_records:
                await group.change_log(partial(log.superseded_states_change, work.clean_end))
        except LogCorrupt as error:
            if log.removals == removals and not log.is_changing and group.stopped is None:
                group.stop(error)
            return False
        except OSError as error:
            _log.warning("group %s cannot be compacted now: %s", group.group_id, error)
            return False
        except Exception:
            await self.run_blocking(work.close)
            raise
        await self.run_blocking(work.close)
        self.counts.records_removed += work.records_removed
        return step is None

    # Tombstones.

    async def _agree(self, known: _Compacted, rules: CompactionRules) -> None:
        """Ask all members how far their logs are clean, and tell them below which offset tombstones may go.

        Done only while there are old tombstones: an idle group costs no messages.
        """
        group, now_ms = known.group, self.host.clock.trusted_ms()
        old_end = old_enough(known.log.closed_segments, now_ms, rules.delete_retention_ms)
        if known.oldest_tombstone >= old_end and known.tombstones_told >= known.tombstones_end:
            return
        if known.agreement[0] != group.term:
            known.agreement = group.term, Agreement()
        told = known.tombstones_end
        head = msgspec.msgpack.encode(_Ask(group.group_id, told))
        members = sorted(group.membership.members)
        answers = await asyncio.gather(*(self._clean_end_of(node, head, known) for node in members))
        if sorted(group.membership.members) != members:
            return  # the next look asks the new members
        if None not in answers:
            known.tombstones_told = told
        end = known.agreement[1].heard(dict(zip(members, answers, strict=True)))
        known.tombstones_end = max(known.tombstones_end, min(end, old_end))

    async def _clean_end_of(self, node: NodeId, head: bytes, known: _Compacted) -> Clean | None:
        if node == self.host.node_id:
            return Clean(known.opening, known.clean_end)
        self.counts.questions += 1
        try:
            answer, _ = await self.host.calls.call(node, SERVICE, head, timeout_ms=ASK_TIMEOUT_MS)
        except RaftlogError:
            return None
        return Clean(*msgspec.msgpack.decode(answer, type=tuple[int, int]))

    async def _serve(self, sender: NodeId, ask: _Ask) -> tuple[int, int]:
        known, group = self._logs.get(ask.group_id), self.host.groups.get(ask.group_id)
        is_here = known is not None and known.group is group and known.group.stopped is None
        if known is None or not is_here or sender not in known.group.membership.members:
            raise InvalidRequest(f"this broker compacts no log of group {ask.group_id}")
        known.tombstones_end = max(known.tombstones_end, ask.tombstones_end)
        return known.opening, int(known.clean_end)
