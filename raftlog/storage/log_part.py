"""A part of a segmented log for one reader on another thread: see ``LogPart``.

It holds copies of segments, which open their files for themselves. So appends, rolls and truncations change
nothing in it, and closing the log takes no file from under it. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.records.batch import BatchHeader
from raftlog.storage.log_storage import LogRange
from raftlog.storage.segment_list import SegmentList, terms_from
from raftlog.types import FIRST_INDEX, EntryId, Index


class SegmentsPart:
    """The part of a log from ``first`` on, with its ``terms``; its oldest segment begins at ``first``."""

    def __init__(self, whole: SegmentList, part: SegmentList, first: Index, terms: Sequence[EntryId]) -> None:
        self.first_index = first
        self._whole = whole
        self._part = part
        self._terms = terms

    @property
    def last_index(self) -> Index:
        """The last index of the part."""
        return Index(self._part.active.last)

    def read(self, first: Index, last: Index, *, bytes_max: int) -> LogRange:
        """Whole batches, starting with the batch that contains ``first``; see ``StoredBatches.read``."""
        end = min(last, self._part.active.last)
        return self._part.read(first, end, bytes_max, terms_from(first, self._terms))

    def headers_back(self, last: Index, count: int) -> list[BatchHeader]:
        """The batches that end at ``last``, newest first; see ``LogReader``."""
        return self._part.headers_back(last, count)

    def index_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> tuple[Index, int] | None:
        """Base index and max timestamp of the first batch that reaches the time; see ``LogReader``."""
        header = self._part.find_time(timestamp_ms, max(first, self.first_index))
        return None if header is None else (Index(header.base_offset), header.max_timestamp)

    def finished(self) -> None:
        """Give the log the indexes that were loaded here."""
        self._whole.adopt_indexes(self._part)
