"""The reading part of a segmented log: indexes, terms, bytes, the restored state.

All changes are in ``log_changes`` and ``segmented_log``.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState, Restored
from raftlog.errors import OffsetOutOfRange
from raftlog.records.batch import BatchHeader
from raftlog.storage.durable_state import DurableState
from raftlog.storage.epochs import Epochs
from raftlog.storage.log_storage import LogPart, LogRange
from raftlog.storage.members import LogMembers
from raftlog.storage.recovery import OpenedLog
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment_list import SegmentList, terms_from
from raftlog.storage.state_files import StateFiles
from raftlog.types import FIRST_INDEX, EntryId, Index, Term


class LogReads:
    """The read methods of a segmented log; see ``LogStorage``."""

    def __init__(self, opened: OpenedLog, states: StateFiles) -> None:
        self.states = states
        self.removals = 0  # the number of removals of entries, at either end
        self._state: DurableState = opened.state
        self._epochs: Epochs = opened.epochs
        self._members: LogMembers = opened.members
        self._segments = SegmentList(opened.segments)
        self.first_index = Index(max(opened.state.state.log_start, opened.segments[0].base))
        self.last_index = Index(self._segments.active.last)  # ``first_index - 1`` when the log is empty
        self._durable: int = self.last_index
        self._commit: int = min(opened.state.state.commit_index, self.last_index)

    @property
    def durable_index(self) -> Index:
        """The newest index that survives a crash of this machine."""
        return Index(self._durable)

    @property
    def durable_hard_state(self) -> HardState:
        """The hard state that survives a crash of this machine."""
        return self._state.durable_hard_state

    @property
    def size_bytes(self) -> int:
        """The total size in bytes of all segments."""
        return self._segments.size_bytes

    @property
    def closed_segments(self) -> tuple[ClosedSegment, ...]:
        """The closed segments, oldest first, for ``retention``."""
        return tuple(
            ClosedSegment(
                Index(segment.base),
                Index(segment.last),
                segment.size,
                segment.max_timestamp,
                segment.stored_ms,
            )
            for segment in self._segments.closed
        )

    @property
    def durable_part_of_active(self) -> ClosedSegment:
        """The part of the active segment that is certainly on the disk; it ends near ``durable_index``."""
        active = self._segments.active
        size, last = (0, active.base - 1) if self._durable < active.base else active.known_end(self._durable)
        return ClosedSegment(Index(active.base), Index(last), size, active.max_timestamp, active.stored_ms)

    @property
    def compactable_segments(self) -> tuple[ClosedSegment, ...]:
        """The closed segments whose entries are all committed, and durable on this disk; oldest first."""
        limit = min(self._durable, self._commit)
        return tuple(segment for segment in self.closed_segments if segment.last <= limit)

    def base_from(self, index: Index) -> Index | None:
        """The base offset of the first segment that begins at ``index`` or later; None if there is none."""
        return self._segments.base_from(index)

    def restored(self, membership: Membership) -> Restored:
        """The state that was found when the log was opened, after the torn tail was cut off."""
        before = EntryId(self._state.state.before, Index(self.first_index - 1))
        base = self._members.base(self.first_index)
        return Restored(
            hard_state=self._state.state.hard_state,
            membership=membership if base is None else base,
            memberships=self._members.in_log(),
            terms=self.terms(),
            snapshot=before,
            last=EntryId(self.term_at(Index(self.last_index)), Index(self.last_index)),
            commit_hint=Index(self._commit),
        )

    def read(self, first: Index, last: Index, *, bytes_max: int) -> LogRange:
        """Read whole batches, beginning with the batch that contains ``first``; see
        ``StoredBatches.read``.
        """
        self._require(first, last)
        return self._segments.read(first, last, bytes_max, self._epochs.entries(first))

    def recent(self, first: Index, last: Index, *, bytes_max: int) -> LogRange | None:
        """The places of these batches in the files, if they are in memory, else None; see
        ``ReadableLog.recent``.
        """
        if not self.first_index <= first <= last <= self.last_index:
            return None
        return self._segments.recent(first, last, bytes_max, self._epochs.entries(first))

    def part(self, first: Index, bytes_max: int) -> LogPart:
        """A part of the log for one reader on another thread; see ``ReadableLog.part``."""
        self._require(first, first)
        return self._part(self._segments.part(first, bytes_max))

    def part_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> LogPart | None:
        """A part of the log that begins near a time, for another thread; see ``ReadableLog.part_at_time``."""
        part = self._segments.part_at_time(timestamp_ms, max(first, self.first_index))
        return None if part is None else self._part(part)

    def _require(self, first: int, last: int) -> None:
        if not self.first_index <= first <= last <= self.last_index:
            raise OffsetOutOfRange(
                f"{first}..{last} is not within {self.first_index}..{self.last_index}",
                start=self.first_index,
                end=self.last_index + 1,
            )

    def _part(self, part: SegmentList) -> LogPart:
        first = Index(max(part[0].base, self.first_index))
        return SegmentsPart(self._segments, part, first, self._epochs.entries(first))

    def term_at(self, index: Index) -> Term:
        """The term of an entry of the log, or of the entry just before the log."""
        if index == self.first_index - 1:
            return self._state.state.before
        term = self._epochs.term_at(index) if self.first_index <= index <= self.last_index else None
        if term is None:
            raise OffsetOutOfRange(
                f"{index} is not within {self.first_index}..{self.last_index}",
                start=self.first_index,
                end=self.last_index + 1,
            )
        return Term(term)

    def terms(self) -> tuple[EntryId, ...]:
        """The first entry of each term of the log, oldest first."""
        return self._epochs.entries(self.first_index) if self.last_index >= self.first_index else ()

    def load_checkpoint(self) -> tuple[Index, bytes] | None:
        """The newest sound state whose entry the log holds.

        Raises ``LogCorrupt`` if damage left no such state.
        """
        return self.states.newest(self.holds)

    def holds(self, entry: EntryId) -> bool:
        """Whether the log holds this entry, or begins just after it."""
        return (
            self.first_index - 1 <= entry.index <= self.last_index and self.term_at(entry.index) == entry.term
        )


class SegmentsPart:
    """The part of a log from ``first`` on, with its ``terms``; its oldest segment begins at ``first``.

    The class is a ``LogPart``, for one reader on another thread. The part holds copies of segments, which
    open their own files. So appends, new segments and truncations of the log change nothing in the part, and
    closing the log does not close its files.
    """

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
        """Read whole batches, beginning with the batch that contains ``first``; see
        ``StoredBatches.read``.
        """
        end = min(last, self._part.active.last)
        return self._part.read(first, end, bytes_max, terms_from(first, self._terms))

    def headers_back(self, last: Index, count: int) -> list[BatchHeader]:
        """The headers of the batches that end at ``last``, newest first; see ``LogReader``."""
        return self._part.headers_back(last, count)

    def index_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> tuple[Index, int] | None:
        """Base index and max timestamp of the first batch that has a record at or after a time; see
        ``LogReader``.
        """
        header = self._part.find_time(timestamp_ms, max(first, self.first_index))
        return None if header is None else (Index(header.base_offset), header.max_timestamp)

    def finished(self) -> None:
        """Give the indexes that this part has loaded to the log, for its next readers."""
        self._whole.adopt_indexes(self._part)
