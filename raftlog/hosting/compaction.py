"""Compacts the logs that are hosted here, one after the other.

Decides: when a round of compaction begins, how fast it reads, and when it is given up. Leaves to others:
which records stay (``raftlog.storage.compaction``), the work itself (``raftlog.storage.compactor``), and
replacing a segment in a safe order (the log).

What of a log is clean is known in memory only: after a start, the first round reads all closed segments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from raftlog.errors import LogCorrupt
from raftlog.hosting.tenant import CompactionRules, Tenant
from raftlog.node.blocking import RunBlocking
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.storage.compaction import is_due
from raftlog.storage.compactor import Compactor
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment_rewriter import RewrittenSegment
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, Index

_log = logging.getLogger("raftlog.hosting")


@dataclass(slots=True)
class CompactionCounts:
    """For metrics."""

    bytes_read: int = 0
    records_removed: int = 0


@dataclass(slots=True)
class _Compacted:
    """One replica that serves, and how far its log is clean."""

    group: RaftGroup[object]
    log: SegmentedLog
    clean_end: Index

    def compactable(self) -> list[ClosedSegment]:
        """The state machine has taken in all of these, too: it knows which headers it needs."""
        applied = self.group.applied_index
        return [segment for segment in self.log.compactable_segments if segment.last <= applied]


@dataclass(slots=True)
class CompactionManager:
    """One broker's. All methods belong to the event loop's thread."""

    host: GroupHost
    filesystem: Filesystem
    run_blocking: RunBlocking
    tenants: Callable[[], Iterable[Tenant]]
    bytes_per_s: int
    counts: CompactionCounts = field(default_factory=CompactionCounts)
    _logs: dict[GroupId, _Compacted] = field(default_factory=dict)

    async def run(self, interval_ms: int) -> None:
        """Look at every replica now and then, until cancelled. Nothing is compacted at a rate of 0."""
        while self.bytes_per_s:
            await asyncio.sleep(interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Compact all logs of which enough is dirty."""
        before, self._logs = self._logs, {}
        for tenant in list(self.tenants()):
            rules, group = tenant.compaction, self.host.groups.get(tenant.group_id)
            if rules is None or group is None or group.stopped is not None:
                continue
            assert isinstance(group.log, SegmentedLog)
            known = before.get(group.group_id)
            if known is None or known.log is not group.log:
                known = _Compacted(group, group.log, group.log.first_index)
            self._logs[group.group_id] = known
            with self.host.blames(group.group_id):
                await self._look_at(known, rules)
            await asyncio.sleep(0)

    async def _look_at(self, known: _Compacted, rules: CompactionRules) -> None:
        group, log = known.group, known.log
        while group.stopped is None and self.host.has_room():
            known.clean_end = Index(max(known.clean_end, log.first_index))
            segments = known.compactable()
            if not is_due(segments, known.clean_end, rules.dirty_ratio_min):
                return
            work = Compactor(
                self.filesystem,
                log.directory,
                segments,
                log.terms(),
                known.clean_end,
                headers_kept=rules.headers_needed(),
            )
            if not await self._carry_out(known, work):
                return
            known.clean_end = work.clean_end

    async def _carry_out(self, known: _Compacted, work: Compactor) -> bool:
        """One round; whether it came to its end. It is given up where retention or a snapshot was faster."""
        group, log = known.group, known.log
        removals = log.removals
        try:
            while (step := await self.run_blocking(work.step)) is not None:
                if log.removals != removals or group.stopped is not None:
                    break
                if isinstance(step, RewrittenSegment):
                    await group.change_log(partial(log.replace_change, step))
                    removals = log.removals
                else:
                    self.counts.bytes_read += step
                    await asyncio.sleep(step / self.bytes_per_s if self.bytes_per_s else 0)
        except LogCorrupt as error:
            if log.removals == removals and not log.is_changing and group.stopped is None:
                group.stop(error)
            return False
        except OSError as error:
            _log.warning("group %s is not compacted for now: %s", group.group_id, error)
            return False
        await self.run_blocking(work.close)
        self.counts.records_removed += work.records_removed
        return step is None
