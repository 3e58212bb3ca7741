"""One round of compaction over the files of a log, in blocking steps.

Decides: the work of each step. Leaves to others: which records stay (``compaction``), when a round begins,
the thread of a step, and putting a new file in the place of its segment (``SegmentedLog.replace_change``).

    look at keys     dirty segments, from the oldest on, until the memory for keys is used up
    rewrite          each segment below the end of the round, oldest first; unchanged segments stay
    join             neighbours that now fit into one segment, so that the number of files stays small
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Final, NamedTuple

from raftlog.records.aborted import AbortedRanges
from raftlog.storage.compaction import KEYS_MAX, NO_TOMBSTONE, Compaction, NewestOffsets, Round
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment_rewriter import RewrittenSegment, SegmentReader, SegmentRewriter
from raftlog.storage.sparse_index import INDEX_INTERVAL_BYTES
from raftlog.types import EntryId, Index

STEP_BYTES: Final = 1 << 20

Step = int | RewrittenSegment
"""The result of a step: the number of bytes that were read, or a new file for ``replace_change``."""


class _Left(NamedTuple):
    """A segment as the round has left it: rewritten or unchanged."""

    segment: ClosedSegment
    has_tombstones: bool


class Compactor:
    """One round over ``segments``: closed, committed, applied, without a gap, oldest first.

    All transactions in ``segments`` have ended. Below ``clean_end``, each record that is superseded by a
    record below ``clean_end`` is removed already. Neighbours are joined if the result has at most
    ``joined_bytes_max``. Tombstones below ``old_end`` have stayed for their required time.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        segments: Sequence[ClosedSegment],
        terms: Sequence[EntryId],
        clean_end: Index,
        *,
        headers_kept: Collection[int] = frozenset(),
        tombstones_end: int = 0,
        aborted: AbortedRanges | None = None,
        keys_max: int = KEYS_MAX,
        joined_bytes_max: int = 0,
        old_end: int = 0,
        step_bytes: int = STEP_BYTES,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        self.clean_end = clean_end
        self.records_removed = 0
        self.oldest_tombstone = NO_TOMBSTONE  # of the tombstones that stay below ``clean_end``
        self._filesystem = filesystem
        self._directory = directory
        self._segments = segments
        self._terms = terms
        self._headers_kept = headers_kept
        self._tombstones_end = tombstones_end
        self._aborted = aborted or AbortedRanges()
        self._keys_max = keys_max
        self._joined_bytes_max = joined_bytes_max
        self._old_end = old_end
        self._step_bytes = step_bytes
        self._interval_bytes = index_interval_bytes
        self._left: list[_Left] = []
        self._rewriter: SegmentRewriter | None = None
        self._steps = self._run()

    def step(self) -> Step | None:
        """Do one step of work; None once the round is over. Raises ``LogCorrupt`` and ``OSError``."""
        try:
            return next(self._steps, None)
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """End the round early, and remove a half-written file."""
        self._steps.close()
        self._abandon()

    def _run(self) -> Generator[Step]:
        newest = NewestOffsets(self._keys_max, self._aborted)
        end = yield from self._look(newest)
        plan = Round(newest, end, min(self._tombstones_end, end), self._headers_kept, self._aborted)
        for segment in self._segments:
            if segment.base < end:
                yield from self._rewrite([segment], plan)
        yield from self._join(plan)
        self.clean_end = Index(max(self.clean_end, end))

    def _look(self, newest: NewestOffsets) -> Generator[int, None, int]:
        """Read the keys of the dirty segments into ``newest``; return the offset at which the round ends."""
        end: int = self.clean_end
        for segment in self._segments:
            if segment.last < self.clean_end:
                continue
            reader = SegmentReader(self._filesystem, self._directory, segment, self._terms)
            try:
                while batches := reader.read(self._step_bytes):
                    for batch in batches:
                        if batch.last_offset < self.clean_end:
                            continue
                        if newest.is_full:
                            return end
                        newest.note(batch)
                        end = batch.last_offset + 1
                    yield sum(batch.header.size_bytes for batch in batches)
            finally:
                reader.close()
        return end

    def _rewrite(self, segments: Sequence[ClosedSegment], plan: Round) -> Generator[Step]:
        """Rewrite one segment, or several neighbours, as one file; an unchanged single segment keeps its
        file.
        """
        work = Compaction(plan)
        self._rewriter = SegmentRewriter(self._filesystem, self._directory, segments, self._interval_bytes)
        for segment in segments:
            reader = SegmentReader(self._filesystem, self._directory, segment, self._terms)
            try:
                while batches := reader.read(self._step_bytes):
                    self._rewriter.add(work.feed(batches))
                    yield sum(batch.header.size_bytes for batch in batches)
            finally:
                reader.close()
        self._rewriter.add(work.flush())
        self.oldest_tombstone = min(self.oldest_tombstone, work.oldest_tombstone)
        has_tombstones = work.oldest_tombstone != NO_TOMBSTONE
        if len(segments) == 1 and not work.records_removed and self._rewriter.size == segments[0].size_bytes:
            self._abandon()
            self._left.append(_Left(segments[0], has_tombstones))
            return
        rewritten, self._rewriter = self._rewriter.finish(), None
        self.records_removed += work.records_removed
        yield rewritten
        self._left.append(_Left(rewritten.as_closed, has_tombstones))

    def _join(self, plan: Round) -> Generator[Step]:
        """Join neighbours until no two of them fit into one segment; adjacent gap batches become one."""
        left, count = [one for one in self._left if one.segment.last < plan.end], 0
        while count != len(left):
            count = len(left)
            groups, left = self._joinable(left), []
            for group in groups:
                if len(group) > 1:
                    yield from self._rewrite([one.segment for one in group], plan)
                left.append(group[0] if len(group) == 1 else self._left[-1])

    def _joinable(self, left: Sequence[_Left]) -> list[list[_Left]]:
        """Groups of neighbours that may become one segment.

        A joined segment is as old as its newest batch. So a segment with tombstones is joined only with old
        segments: otherwise its tombstones would stay longer than needed.
        """
        groups: list[list[_Left]] = []
        size_bytes, has_tombstones = self._joined_bytes_max, False
        for one in left:
            size_bytes += one.segment.size_bytes
            has_tombstones |= one.has_tombstones
            keeps_age = not has_tombstones or one.segment.last < self._old_end
            if groups and keeps_age and size_bytes <= self._joined_bytes_max:
                groups[-1].append(one)
            else:
                groups.append([one])
                size_bytes, has_tombstones = one.segment.size_bytes, one.has_tombstones
        return groups

    def _abandon(self) -> None:
        """Delete the half-written file now: later, another process may have created a file with this name."""
        rewriter, self._rewriter = self._rewriter, None
        if rewriter is not None:
            rewriter.abandon()
