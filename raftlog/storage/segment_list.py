"""The segments of one log in order, with searches and reads across them. Writes nothing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from raftlog.records.batch import BatchHeader
from raftlog.storage.filesystem import File
from raftlog.storage.log_storage import FileRange, LogRange
from raftlog.storage.segment import Segment
from raftlog.types import EntryId, Index

_LOADED_INDEXES_MAX = 4  # of closed segments; a reader reads one segment after the other


class SegmentList:
    """The segments of one log, oldest first; there is at least one, and the last one is active."""

    __slots__ = ("_bases", "_loaded", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self._loaded: list[Segment] = []
        self.active = segments[-1]

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def closed(self) -> list[Segment]:
        """All segments except the active one, oldest first."""
        return self._segments[:-1]

    @property
    def size_bytes(self) -> int:
        """The total size in bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def position_of(self, index: int) -> int:
        """The position in this list of the segment that contains the index."""
        return bisect_right(self._bases, index) - 1

    def base_from(self, index: int) -> Index | None:
        """The base offset of the first segment that begins at ``index`` or later; None without such a
        segment.
        """
        if index > self._bases[-1]:
            return None
        return Index(self._bases[bisect_left(self._bases, index)])

    def push(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self._bases.append(segment.base)
        self.active = segment

    def behind(self, at: int) -> list[Segment]:
        """The segments after segment ``at``."""
        return self._segments[at + 1 :]

    def drop_after(self, at: int) -> list[Segment]:
        """Make segment ``at`` the active segment; return the segments after it."""
        dropped = self._segments[at + 1 :]
        del self._segments[at + 1 :], self._bases[at + 1 :]
        self.active = self._segments[at]
        self._loaded = [segment for segment in self._loaded if segment.base < self.active.base]
        return dropped

    def drop_before(self, at: int) -> list[Segment]:
        """Make segment ``at`` the oldest segment; return the segments before it."""
        dropped = self._segments[:at]
        del self._segments[:at], self._bases[:at]
        self._loaded = [segment for segment in self._loaded if segment.base >= self._bases[0]]
        return dropped

    def replace(self, segment: Segment) -> None:
        """Put a closed segment in the place of all segments whose offsets it covers."""
        at, end = self.position_of(segment.base), self.position_of(segment.last) + 1
        self._loaded = [loaded for loaded in self._loaded if loaded not in self._segments[at:end]]
        self._segments[at:end], self._bases[at:end] = [segment], [segment.base]

    def part(self, first: int, bytes_max: int) -> SegmentList:
        """Copies of the segments that a read of ``bytes_max`` bytes from ``first`` on may need."""
        at = self.position_of(first)
        copies = [self._segments[at].copy()]
        for segment in self._segments[at + 1 :]:
            if bytes_max <= 0:
                break
            copies.append(segment.copy())
            bytes_max -= segment.size
        return SegmentList(copies)

    def adopt_indexes(self, part: SegmentList) -> None:
        """Use the indexes that a part has loaded for the next readers of its segments."""
        for copy in part._segments:
            mine = self._segments[max(self.position_of(copy.base), 0)]
            if mine is not self.active and mine.adopt_index(copy):
                self._note_loaded(mine)

    def recent(self, first: int, last: int, bytes_max: int, terms: Sequence[EntryId]) -> LogRange | None:
        """The result of ``read`` if it can be found without the disk, else None."""
        return self.read(first, last, bytes_max, terms) if first >= self.active.recent_from else None

    def read(self, first: int, last: int, bytes_max: int, terms: Sequence[EntryId]) -> LogRange:
        """Find whole batches, beginning with the batch that contains ``first``; see ``StoredBatches.read``.

        Both indexes are in the log. ``terms`` are the first entries of the terms from ``first`` on.
        """
        at = len(self._segments) - 1 if first >= self.active.base else self.position_of(first)
        segment = self._segments[at]
        file = segment.open_file()
        place = segment.locate(file, first)
        end, found = _end_of_run(segment, file, place.position, last, bytes_max)
        if end <= place.position:
            end, found = place.end, place.last
        runs = [FileRange(file, place.position, end - place.position, place.base, found, terms)]
        room = bytes_max - runs[0].length
        while found < last and found == segment.last:
            self._note_loaded(segment)
            at += 1
            segment = self._segments[at]
            file = segment.open_file()
            end, following = _end_of_run(segment, file, 0, last, room)
            if end <= 0:
                break
            runs.append(FileRange(file, 0, end, segment.base, following, terms_from(segment.base, terms)))
            room, found = room - end, following
        self._note_loaded(segment)
        return LogRange(Index(place.base), Index(found), tuple(runs))

    def headers_back(self, last: int, count: int) -> list[BatchHeader]:
        """Headers of batches, newest first, starting with the batch of ``last``; see
        ``LogReader.headers_back``.
        """
        segment = self._segments[self.position_of(last)]
        found = segment.headers_back(segment.open_file(), last, count)
        self._note_loaded(segment)
        return found

    def find_time(self, timestamp_ms: int, first: int) -> BatchHeader | None:
        """The first batch with a user record at or after the time that ends at ``first`` or later; None
        without one.
        """
        for segment in self._reaching(timestamp_ms, first):
            header = segment.locate_time(segment.open_file(), timestamp_ms, first)
            self._note_loaded(segment)
            if header is not None:
                return header
        return None

    def part_at_time(self, timestamp_ms: int, first: int) -> SegmentList | None:
        """A copy of the first segment that ``find_time`` must search; None if no segment reaches the time."""
        segment = next(self._reaching(timestamp_ms, first), None)
        return None if segment is None else SegmentList([segment.copy()])

    def _reaching(self, timestamp_ms: int, first: int) -> Iterator[Segment]:
        for segment in self._segments:
            if segment.size and segment.last >= first and segment.max_timestamp >= timestamp_ms:
                yield segment

    def _note_loaded(self, segment: Segment) -> None:
        if segment is not self.active and segment.has_index_loaded and segment not in self._loaded:
            self._loaded.append(segment)
            if len(self._loaded) > _LOADED_INDEXES_MAX:
                self._loaded.pop(0).release_index()


def terms_from(first: int, terms: Sequence[EntryId]) -> Sequence[EntryId]:
    """The part of ``terms`` (first entries of terms) that applies to the entries from ``first`` on."""
    passed = sum(1 for entry in terms if entry.index <= first)
    return terms[max(passed - 1, 0) :]


def _end_of_run(segment: Segment, file: File, start: int, last: int, bytes_max: int) -> tuple[int, int]:
    """The end of a read in one segment: after the batch that contains ``last``, or before ``bytes_max``."""
    if last >= segment.last:
        end, found = segment.size, segment.last
    else:
        _, end, _, found = segment.locate(file, last)
    if end - start <= bytes_max:
        return end, found
    return segment.locate_end(file, start + max(bytes_max, 0))
