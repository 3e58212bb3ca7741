"""The sparse index of one segment: offset to position, time to offset, about one entry per 4 KB.

The index can be rebuilt from the segment. So its file is written without a sync, and is used only if its
checksum is right and it names the present size of the segment. Entry i has a batch's base offset, its
position, and the newest timestamp of all user batches *before* it. Timestamps may go back and forth, but the
first batch that reaches a time is just before the first entry with such a timestamp.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from raftlog.records.batch import NO_TIMESTAMP, BatchHeader
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.sealed import OVERHEAD_BYTES, seal, unseal

NOT_DATED = (1 << 63) - 1
"""The storage time of a segment whose time is unknown: so late that the segment is never old."""
INDEX_INTERVAL_BYTES: Final = 4096  # the bytes of a segment between two entries
_MAGIC = b"RLI1"
_SUMMARY = struct.Struct(">qqqqqiI")
_SUMMARY_BYTES = _SUMMARY.size + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """The head of an index file, which describes its segment; readable without the entries."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp: int
    stored_ms: int = field(default=NOT_DATED, compare=False)  # cannot be derived from the batches alone


def stored_by(header: BatchHeader, now_ms: int = NOT_DATED) -> int:
    """The time (ms) when a batch was stored: its leader's timestamp, or ``now_ms`` if producers set the
    times.
    """
    stamped_ms = header.stamped_ms
    return now_ms if stamped_ms is None else stamped_ms


class SparseIndex:
    """The index in memory: three arrays of 64-bit numbers (offsets, positions, timestamps)."""

    __slots__ = ("_interval_bytes", "_next_position", "_offsets", "_positions", "_times")

    def __init__(self, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self._next_position = 0
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")

    def note(self, offset: int, position: int, max_timestamp_before: int) -> None:
        """Note the next batch; it gets an index entry if the last entry is at least the interval
        before it.
        """
        if position >= self._next_position:
            self._offsets.append(offset)
            self._positions.append(position)
            self._times.append(max_timestamp_before)
            self._next_position = position + self._interval_bytes

    def before_offset(self, offset: int) -> tuple[int, int]:
        """Offset and position of the last index entry at or below ``offset``."""
        at = bisect_right(self._offsets, offset) - 1
        return self._offsets[at], self._positions[at]

    def before_position(self, position: int) -> tuple[int, int]:
        """Offset and position of the last index entry at or below ``position``."""
        at = bisect_right(self._positions, position) - 1
        return self._offsets[at], self._positions[at]

    def before_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Offset and position of the index entry from which to search the first batch that
        reaches the time.
        """
        at = max(bisect_left(self._times, timestamp_ms) - 1, 0)
        return self._offsets[at], self._positions[at]

    def copy(self) -> SparseIndex:
        """A copy of the index, which does not change with the original."""
        copy = SparseIndex(self._interval_bytes)
        copy._offsets, copy._positions, copy._times = self._offsets[:], self._positions[:], self._times[:]
        copy._next_position = self._next_position
        return copy

    def truncate(self, size_bytes: int) -> int:
        """Forget the batches after ``size_bytes``; return the newest timestamp before the last kept entry."""
        keep = bisect_left(self._positions, size_bytes)
        for column in (self._offsets, self._positions, self._times):
            del column[keep:]
        self._next_position = self._positions[-1] + self._interval_bytes if keep else 0
        return self._times[-1] if keep else NO_TIMESTAMP

    def encode(self, summary: SegmentSummary) -> bytes:
        """Encode the index file: the sealed summary, then the three columns."""
        columns = b"".join([_swapped(column).tobytes() for column in self._columns()])
        head = _SUMMARY.pack(
            summary.base_offset,
            summary.last_offset,
            summary.size_bytes,
            summary.max_timestamp,
            summary.stored_ms,
            len(self._offsets),
            crc32c(columns),
        )
        return seal(_MAGIC, head) + columns

    def _columns(self) -> Iterable[array[int]]:
        return self._offsets, self._positions, self._times

    def __len__(self) -> int:
        return len(self._offsets)


def build_index(
    batches: Iterable[tuple[int, BatchHeader]], interval_bytes: int
) -> tuple[SparseIndex, SegmentSummary | None]:
    """The index of a segment, built from its batches, with the summary; the summary is None for
    no batches.
    """
    index = SparseIndex(interval_bytes)
    base, last, end, newest, stored_ms = -1, -1, 0, NO_TIMESTAMP, NO_TIMESTAMP
    for position, header in batches:
        if base < 0:
            base = header.base_offset
        index.note(header.base_offset, position, newest)
        newest = max(newest, header.newest_ms)
        stored_ms = max(stored_ms, stored_by(header))
        last, end = header.last_offset, position + header.size_bytes
    return index, SegmentSummary(base, last, end, newest, stored_ms) if base >= 0 else None


def write_index(filesystem: Filesystem, path: str, index: SparseIndex, summary: SegmentSummary) -> None:
    """Replace the index file, without a sync. A full disk is no error: the file can be built again."""
    with contextlib.suppress(OSError):
        filesystem.remove(path)
        file = filesystem.open(path, create=True)
        try:
            file.append([index.encode(summary)])
        finally:
            file.close()


def load_summary(filesystem: Filesystem, path: str) -> SegmentSummary | None:
    """The head of an index file; None if the file is missing or damaged."""
    try:
        file = filesystem.open(path)
    except FileNotFoundError:
        return None
    try:
        payload = unseal(_MAGIC, file.read_at(0, _SUMMARY_BYTES))
        if payload is None:
            return None
        base, last, size, newest, stored_ms, count, _ = _SUMMARY.unpack(payload)
        if file.size != _SUMMARY_BYTES + 24 * count:
            return None
        return SegmentSummary(base, last, size, newest, stored_ms)
    finally:
        file.close()


def load_index(
    filesystem: Filesystem, path: str, summary: SegmentSummary, interval_bytes: int
) -> SparseIndex | None:
    """The whole index of a segment; None if its file is missing, damaged, or belongs to another segment."""
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    payload = unseal(_MAGIC, data[:_SUMMARY_BYTES])
    if payload is None:
        return None
    base, last, size, newest, _, count, checksum = _SUMMARY.unpack(payload)
    columns = memoryview(data)[_SUMMARY_BYTES:]
    if SegmentSummary(base, last, size, newest) != summary or len(columns) != 24 * count:
        return None
    if not count or crc32c(columns) != checksum:
        return None
    index = SparseIndex(interval_bytes)
    for at, column in enumerate(index._columns()):
        column.frombytes(columns[at * 8 * count : (at + 1) * 8 * count])
        if sys.byteorder == "little":
            column.byteswap()
    index._next_position = index._positions[-1] + interval_bytes
    return index


def _swapped(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        return column
    copy = column[:]
    copy.byteswap()
    return copy
