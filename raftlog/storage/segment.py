"""One segment: a file of contiguous whole batches, and the search for positions in it.

The active segment has its index in memory, and the exact positions of its newest batches; its file stays open
between its uses while it is among the most recently used (``held_files``). A closed segment is five numbers
in memory. Its file is opened for a read and closes itself when the last reader releases it; its index is
loaded by the first read that needs it.

A sync takes a third less time if an append has changed neither the length of its file nor the file's blocks.
So the file of a segment with small appends is filled in advance with zeros. Zeros at the end of a file do not
count (``batch_walk.is_blank``).

Decides the positions of batches. Leaves to others (the log): which segment to use, and when to close one.
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from weakref import ReferenceType, ref

from raftlog.errors import LogCorrupt
from raftlog.records.batch import BATCH_OVERHEAD, NO_TIMESTAMP, BatchHeader
from raftlog.storage.batch_walk import BatchDamaged, walk_batches, walk_headers
from raftlog.storage.filesystem import Buffer, File, Filesystem
from raftlog.storage.sparse_index import (
    NOT_DATED,
    SegmentSummary,
    SparseIndex,
    build_index,
    load_index,
    stored_by,
    write_index,
)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
_TAIL_BATCHES_MAX = 512

FILL_BYTES_MIN: Final = 16 << 10
FILL_BYTES_MAX: Final = 256 << 10
FILL_FOR_BYTES_MAX: Final = 32 << 10  # of one append: a larger append costs as much with or without zeros
_FILL_AFTER = 4  # the number of appends after opening that are not preceded by a fill


class Place(NamedTuple):
    """The place of a batch: the bytes ``position..end`` of the file and the offsets ``base..last``."""

    position: int
    end: int
    base: int
    last: int


def segment_path(directory: str, base_offset: int) -> str:
    """The path of a segment without its suffix."""
    return f"{directory}/{base_offset:020d}"


class Segment:
    """One segment of a log. ``last`` is ``base - 1`` while the segment is empty."""

    __slots__ = (
        "_appends",
        "_directory",
        "_file",
        "_filesystem",
        "_filled",
        "_index",
        "_interval_bytes",
        "_tail_offsets",
        "_tail_positions",
        "base",
        "is_active",
        "last",
        "max_timestamp",
        "path",
        "size",
        "stored_ms",
    )

    def __init__(self, filesystem: Filesystem, directory: str, base: int, interval_bytes: int) -> None:
        self.path = segment_path(directory, base)
        self.base = base
        self.last = base - 1
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.stored_ms = NO_TIMESTAMP  # the time when its newest batch was stored, or later
        self.is_active = False
        self._file: ReferenceType[File] | None = None  # while the segment is active; the file may be closed
        self._filled = 0  # the end of the zeros in the file; up to ``size`` there are none
        self._appends = 0  # the number of appends past that end since the file was opened
        self._filesystem = filesystem
        self._directory = directory
        self._interval_bytes = interval_bytes
        self._index: SparseIndex | None = SparseIndex(interval_bytes)
        self._tail_offsets = array("q")
        self._tail_positions = array("q")

    @classmethod
    def closed(
        cls, filesystem: Filesystem, directory: str, summary: SegmentSummary, interval_bytes: int
    ) -> Segment:
        """A closed segment, from the summary in its index file."""
        segment = cls(filesystem, directory, summary.base_offset, interval_bytes)
        segment.last = summary.last_offset
        segment.size = summary.size_bytes
        segment.max_timestamp = summary.max_timestamp
        segment.stored_ms = summary.stored_ms
        segment._index = None
        return segment

    @property
    def summary(self) -> SegmentSummary:
        """The five numbers that describe the segment."""
        return SegmentSummary(self.base, self.last, self.size, self.max_timestamp, self.stored_ms)

    @property
    def has_index_loaded(self) -> bool:
        """Whether the index is in memory."""
        return self._index is not None

    @property
    def recent_from(self) -> int:
        """The offset from which the exact position of every batch is in memory."""
        return self._tail_offsets[0] if self._tail_offsets else self.last + 1

    def copy(self) -> Segment:
        """A copy of the segment's present state, for another thread; the copy opens its own file."""
        copy = Segment.closed(self._filesystem, self._directory, self.summary, self._interval_bytes)
        if self._index is not None:
            copy._index = self._index if not self.is_active else self._index.copy()
        return copy

    def adopt_index(self, copy: Segment) -> bool:
        """Use the index that a copy of this closed segment has loaded; return whether it was used."""
        if self._index is not None or copy._index is None or copy.summary != self.summary:
            return False
        self._index = copy._index
        return True

    def note(self, header: BatchHeader, now_ms: int = NOT_DATED) -> None:
        """Note a batch that was appended to the file; ``now_ms`` is the time of its arrival, if that is
        known.
        """
        base = header.base_offset
        position = self.size
        index = self._index
        assert index is not None
        index.note(base, position, self.max_timestamp)
        self._tail_offsets.append(base)
        self._tail_positions.append(position)
        if len(self._tail_offsets) > _TAIL_BATCHES_MAX:
            del self._tail_offsets[: _TAIL_BATCHES_MAX // 2]
            del self._tail_positions[: _TAIL_BATCHES_MAX // 2]
        self.max_timestamp = max(self.max_timestamp, header.newest_ms)
        self.stored_ms = max(self.stored_ms, stored_by(header, now_ms))
        self.last = base + header.last_offset_delta
        self.size = position + header.batch_length + BATCH_OVERHEAD

    def close(self) -> None:
        """Close the segment: write its index file, and release its memory and its file."""
        assert self._index is not None
        write_index(self._filesystem, self.path + INDEX_SUFFIX, self._index, self.summary)
        self.let_go()
        self.release_index()
        self._tail_offsets = array("q")
        self._tail_positions = array("q")

    def release_index(self) -> None:
        """Free the index's memory; the next read loads it again."""
        self._index = None

    def create(self) -> File:
        """Make this the active segment, with a new file whose name is not durable yet."""
        file = self._filesystem.open(self.path + LOG_SUFFIX, create=True)
        self.activate(file)
        return file

    def activate(self, file: File) -> None:
        """Make this the active segment; the caller holds ``file`` until it is synced."""
        self.is_active = True
        self._hold(file)

    def open_file(self) -> File:
        """The file for a reader: the active segment's own, or a newly opened file of a closed segment."""
        file = self._opened()
        if self.is_active:
            self._hold(file)
        return file

    def open_to_cut(self) -> File:
        """The file of a segment to be cut; all readers share this file while the caller holds it.

        A file that is opened between the truncation on the disk and ``reopen`` is shorter than ``size``, and
        would count as damaged.
        """
        file = self._opened()
        self._hold(file)
        return file

    def append(self, buffers: Sequence[Buffer], size_bytes: int, fill_up_to: int) -> File:
        """Write whole batches to the active segment's file; the caller must then ``note`` each batch.

        The caller holds the returned file until it is synced. Zeros are written up to ``fill_up_to`` at most.
        Raises ``OSError`` (EMFILE) if too many files wait for their syncs.
        """
        file = self._opened()
        if not self._hold(file):
            raise OSError(errno.EMFILE, "too many open segments wait for a sync", file.path)
        try:
            file.append(buffers)
        except OSError:
            self._filled = 0
            raise
        end = self.size + size_bytes
        if end > self._filled and size_bytes <= FILL_FOR_BYTES_MAX:
            self._fill(file, end, fill_up_to)
        return file

    def _fill(self, file: File, end: int, limit: int) -> None:
        """Write zeros after the end, but only in a segment with several appends: most segments get few."""
        self._appends += 1
        length = min(max(end, FILL_BYTES_MIN), FILL_BYTES_MAX, limit - end)
        if self._appends > _FILL_AFTER and length > 0:
            try:
                file.fill(length)
            except OSError:  # appends continue without zeros, and fail themselves if they must
                self._appends = 0
            else:
                self._filled = end + length

    def end_fill(self) -> None:
        """Cut the zeros off the end of the active segment's file. Waits for the disk."""
        if self._filled > self.size:
            file = self._opened()
            file.truncate(self.size)
            self._filled = 0

    def _hold(self, file: File) -> bool:
        self._file = ref(file)
        return self._filesystem.hold(file)

    def _opened(self) -> File:
        file = None if self._file is None else self._file()
        if file is not None:
            return file
        try:
            file = self._filesystem.open(self.path + LOG_SUFFIX)
        except FileNotFoundError:
            raise self._corrupt(0, "the file is missing") from None
        if file.size < self.size:
            raise self._corrupt(file.size, f"the file ends here, but had {self.size} bytes before")
        self._appends = 0
        if self.is_active and file.size > self.size:
            if file.size <= self._filled:
                file.end_at(self.size)
            else:  # an append has failed, and its removal has failed, too
                file.truncate(self.size)
        return file

    def let_go(self) -> File | None:
        """Stop being the active segment; return the file if it is open, which closes itself after its last
        use.
        """
        file = None if self._file is None else self._file()
        self.is_active, self._file = False, None
        if file is not None:
            self._filesystem.let_go(file)
        return file

    def close_file(self) -> None:
        """Close the active segment's file at once, if it is open."""
        if (file := self.let_go()) is not None:
            file.close()

    def known_end(self, last: int) -> tuple[int, int]:
        """The end of the batch that ends with ``last``, or of an earlier batch, and that batch's last offset.

        The result is the newest such end that is known without reading the disk.
        """
        if last >= self.last:
            return self.size, self.last
        at = bisect_right(self._tail_offsets, last + 1) - 1
        if at >= 0:
            return self._tail_positions[at], self._tail_offsets[at] - 1
        offset, position = self.index.before_offset(last + 1)
        return position, offset - 1

    def locate(self, file: File, offset: int) -> Place:
        """The place of the batch that contains ``offset``, which must be in ``base..last``."""
        tail = self._tail_offsets
        at = bisect_right(tail, offset) - 1
        if at >= 0:
            position, base = self._tail_positions[at], tail[at]
            if at + 1 < len(tail):
                return Place(position, self._tail_positions[at + 1], base, tail[at + 1] - 1)
            return Place(position, self.size, base, self.last)
        *_, (position, header) = self._walk_up_to(file, *self.index.before_offset(offset), offset)
        return Place(position, position + header.size_bytes, header.base_offset, header.last_offset)

    def locate_end(self, file: File, limit: int) -> tuple[int, int]:
        """The last end of a batch at or before byte ``limit``, and the last offset of that batch."""
        if limit >= self.size:
            return self.size, self.last
        at = bisect_right(self._tail_positions, limit) - 1
        if at >= 0:
            return self._tail_positions[at], self._tail_offsets[at] - 1
        base, position = self.index.before_position(limit)
        for at, header in self._walk(file, base, position):
            if at + header.size_bytes > limit:
                return at, header.base_offset - 1
        raise self._corrupt(self.size, "the batches end early")

    def headers_back(self, file: File, offset: int, count: int) -> list[BatchHeader]:
        """The headers of about ``count`` batches, newest first, starting with the batch that contains
        ``offset``.

        Fewer headers if the beginning of the segment is reached.
        """
        found: list[BatchHeader] = []
        while len(found) < count and offset >= self.base:
            start = self.index.before_offset(offset)
            passed = [header for _, header in self._walk_up_to(file, *start, offset)]
            found += reversed(passed)
            offset = start[0] - 1
        return found

    def locate_time(self, file: File, timestamp_ms: int, first: int) -> BatchHeader | None:
        """The header of the first batch that has a user record at or after a time and ends at ``first`` or
        later.

        A damaged timestamp could make a reader miss records, so every batch that the search skips is checked.
        """
        if timestamp_ms > self.max_timestamp or self.last < max(first, self.base):
            return None
        start = max(self.index.before_time(timestamp_ms), self.index.before_offset(max(first, self.base)))
        for header in self._checked(file, *start):
            if header.newest_ms >= timestamp_ms and header.last_offset >= first:
                return header
        if first > self.base:
            return None  # the batch that reaches the time may lie below ``first``
        raise self._corrupt(self.size, f"no batch reaches the time {timestamp_ms}")

    def reopen(self, file: File, index: SparseIndex, place: Place) -> None:
        """Make this the active segment again, after the batch at ``place`` and all later batches were cut off
        ``file``.
        """
        self.size = place.position
        self._filled = 0
        index = self._index = index.copy()  # a reader on another thread may use the old index
        newest = index.truncate(place.position)
        if len(index):
            base, position = index.before_position(place.position)
            for _, header in self._walk(file, base, position):
                newest = max(newest, header.newest_ms)
        keep = bisect_right(self._tail_positions, place.position - 1)
        del self._tail_positions[keep:], self._tail_offsets[keep:]
        self.activate(file)
        self.last = place.base - 1
        self.max_timestamp = newest

    @property
    def index(self) -> SparseIndex:
        """The segment's index: from memory, from its file, or built from the batches (no file is written)."""
        if self._index is None:
            path = self.path + INDEX_SUFFIX
            self._index = load_index(self._filesystem, path, self.summary, self._interval_bytes)
            if self._index is None:
                self._rebuild_index()
        return self._index  # type: ignore[return-value]

    def _rebuild_index(self) -> None:
        try:
            index, summary = build_index(walk_headers(self.open_file(), 0, self.size), self._interval_bytes)
        except BatchDamaged as error:
            raise self._corrupt(error.position, error.reason) from None
        if summary != self.summary:
            raise self._corrupt(0, f"the file holds {summary}, but should hold {self.summary}")
        self._index = index

    def _checked(self, file: File, offset: int, position: int) -> Iterator[BatchHeader]:
        """Yield the headers from an entry of the index on, after a check of each batch's checksum."""
        try:
            for _, batch in walk_batches(file, position, self.size, offset):
                yield batch.header
        except BatchDamaged as error:
            raise self._corrupt(error.position, error.reason) from None

    def _walk(self, file: File, offset: int, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield positions and headers from an entry of the index on; raise unless the offsets follow one
        another.
        """
        try:
            yield from walk_headers(file, position, self.size, offset)
        except BatchDamaged as error:
            raise self._corrupt(error.position, error.reason) from None

    def _walk_up_to(
        self, file: File, first: int, position: int, offset: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield positions and headers of batches, up to the batch that contains ``offset``."""
        for place in self._walk(file, first, position):
            yield place
            if place[1].last_offset >= offset:
                return
        raise self._corrupt(self.size, f"no batch holds offset {offset}")

    def _corrupt(self, position: int, reason: str) -> LogCorrupt:
        return LogCorrupt(
            f"{self.path}{LOG_SUFFIX} at position {position}: {reason}; "
            "this replica must stop and be repaired from its peers"
        )
