"""One round of compaction over the files of a log, in steps that block.

Decides: what one step does. Leaves to others: which records stay (``compaction``), when a round begins, on
which thread a step runs, and that a new file takes the place of its segment
(``SegmentedLog.replace_change``).

    look at keys     dirty segments, from the oldest on, until the memory for keys is used up
    rewrite          each segment below the end of that, oldest first; unchanged ones stay
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Final

from raftlog.errors import LogCorrupt
from raftlog.records.aborted import AbortedRanges
from raftlog.storage.compaction import KEYS_MAX, NO_TOMBSTONE, Compaction, NewestOffsets, Round
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment_rewriter import RewrittenSegment, SegmentReader, SegmentRewriter
from raftlog.storage.sparse_index import INDEX_INTERVAL_BYTES
from raftlog.types import EntryId, Index

STEP_BYTES: Final = 1 << 20

Step = int | RewrittenSegment
"""Bytes that were read, or a file for ``replace_change``."""


class Compactor:
    """One round over ``segments``: closed, committed, applied, without a gap, oldest first; all
    transactions in them have ended.

    ``clean_end``: superseded records below it, by records below it, are gone already.
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
        step_bytes: int = STEP_BYTES,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        self.clean_end = clean_end
        self.records_removed = 0
        self.oldest_tombstone = NO_TOMBSTONE  # of those that stay below ``clean_end``
        self._filesystem = filesystem
        self._directory = directory
        self._segments = segments
        self._terms = terms
        self._headers_kept = headers_kept
        self._tombstones_end = tombstones_end
        self._aborted = aborted or AbortedRanges()
        self._keys_max = keys_max
        self._step_bytes = step_bytes
        self._interval_bytes = index_interval_bytes
        self._rewriter: SegmentRewriter | None = None
        self._steps = self._run()

    def step(self) -> Step | None:
        """Do some work; None once the round is over. Raises ``LogCorrupt`` and ``OSError``."""
        try:
            return next(self._steps, None)
        except (LogCorrupt, OSError):
            self._abandon()
            raise

    def close(self) -> None:
        """End the round early: a half-written file goes."""
        self._steps.close()
        self._abandon()

    def _run(self) -> Generator[Step]:
        newest = NewestOffsets(self._keys_max, self._aborted)
        end = yield from self._look(newest)
        plan = Round(newest, end, min(self._tombstones_end, end), self._headers_kept, self._aborted)
        for segment in self._segments:
            if segment.base < end:
                yield from self._rewrite(segment, plan)
        self.clean_end = Index(max(self.clean_end, end))

    def _look(self, newest: NewestOffsets) -> Generator[int, None, int]:
        """Take in the keys of the dirty segments; the end of the round."""
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

    def _rewrite(self, segment: ClosedSegment, plan: Round) -> Generator[Step]:
        work = Compaction(plan)
        reader = SegmentReader(self._filesystem, self._directory, segment, self._terms)
        try:
            self._rewriter = SegmentRewriter(self._filesystem, self._directory, segment, self._interval_bytes)
            while batches := reader.read(self._step_bytes):
                self._rewriter.add(work.feed(batches))
                yield sum(batch.header.size_bytes for batch in batches)
        finally:
            reader.close()
        self._rewriter.add(work.flush())
        self.oldest_tombstone = min(self.oldest_tombstone, work.oldest_tombstone)
        if work.records_removed or self._rewriter.size != segment.size_bytes:
            rewritten, self._rewriter = self._rewriter.finish(), None
            self.records_removed += work.records_removed
            yield rewritten
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Not when the generator is collected: another process may write a file of the same name by then."""
        rewriter, self._rewriter = self._rewriter, None
        if rewriter is not None:
            rewriter.abandon()
