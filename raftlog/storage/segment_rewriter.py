"""Reads closed segments and writes one or several neighbours as one new file, in steps on any thread.

Decides: what is checked of a segment before it is copied. Leaves to others: which records stay
(``compaction``) and when the new file takes the place of the old ones (``SegmentedLog.replace_change``).

<base>.log.compacted   the new file: written, synced, then renamed to <base>.log

A crash before the rename leaves the old segments, and the new file, which is removed when the log is opened.
A crash after the rename may leave segments that the new file has joined: see ``joined_segments``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.records.batch import Batch
from raftlog.storage.batch_walk import BatchDamaged, walk_batches, walk_file
from raftlog.storage.filesystem import File, Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment import LOG_SUFFIX, segment_path
from raftlog.storage.sparse_index import SegmentSummary, SparseIndex
from raftlog.types import EntryId

COMPACTED_SUFFIX: Final = ".compacted"
JOINING_SUFFIX: Final = ".joining"


class SegmentReader:
    """The batches of one closed segment, with every checksum, offset and leader epoch checked.

    ``terms`` are the first entries of all terms in the log.
    """

    def __init__(
        self, filesystem: Filesystem, directory: str, segment: ClosedSegment, terms: Sequence[EntryId]
    ) -> None:
        self._path = segment_path(directory, segment.base) + LOG_SUFFIX
        self._segment = segment
        self._terms = terms
        self._starts = [entry.index for entry in terms]
        self._file = _opened(filesystem, self._path, segment.size_bytes)
        self._walk = walk_batches(self._file, 0, segment.size_bytes, segment.base)
        self._expected: int = segment.base

    def read(self, bytes_max: int) -> list[Batch]:
        """Read the next batches, of about ``bytes_max``; empty only at the segment's end.

        Raises ``LogCorrupt``.
        """
        batches: list[Batch] = []
        size = 0
        try:
            while size < bytes_max and (found := next(self._walk, None)) is not None:
                position, batch = found
                self._check_term(position, batch)
                batches.append(batch)
                size += batch.header.size_bytes
                self._expected = batch.last_offset + 1
        except BatchDamaged as damage:
            raise self._corrupt(damage) from None
        if not batches and self._expected != self._segment.last + 1:
            end = BatchDamaged(self._segment.size_bytes, f"ends before offset {self._expected}")
            raise self._corrupt(end)
        return batches

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _check_term(self, position: int, batch: Batch) -> None:
        at = bisect_right(self._starts, batch.base_offset) - 1
        if batch.leader_epoch != self._terms[max(at, 0)].term:
            raise BatchDamaged(position, f"epoch {batch.leader_epoch} at offset {batch.base_offset}")

    def _corrupt(self, damage: BatchDamaged) -> LogCorrupt:
        return LogCorrupt(
            f"{self._path} at position {damage.position}: {damage.reason}; it is repaired from its peers"
        )


@dataclass(frozen=True, slots=True)
class RewrittenSegment:
    """A synced new file that may replace ``old``: one segment, or several neighbours."""

    old: tuple[ClosedSegment, ...]
    path: str
    summary: SegmentSummary
    index: SparseIndex

    @property
    def as_closed(self) -> ClosedSegment:
        """The new file as a closed segment."""
        summary, first = self.summary, self.old[0]
        last, size_bytes = self.old[-1].last, summary.size_bytes
        return ClosedSegment(first.base, last, size_bytes, summary.max_timestamp, summary.stored_ms)

    @property
    def last(self) -> int:
        """The index of the last entry in the file."""
        return self.summary.last_offset


class SegmentRewriter:
    """Writes the new file for one or several segments.

    Blocks; the log uses the file after ``replace_change``.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        segments: Sequence[ClosedSegment],
        index_interval_bytes: int,
    ) -> None:
        self._filesystem = filesystem
        self._old = tuple(segments)
        self._path = segment_path(directory, segments[0].base) + LOG_SUFFIX + COMPACTED_SUFFIX
        self._index = SparseIndex(index_interval_bytes)
        self._newest_ms = -1
        self._following: int = segments[0].base
        filesystem.remove(self._path)
        self._file: File = filesystem.open(self._path, create=True)

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._file.size

    def add(self, batches: Sequence[Batch]) -> None:
        """Write the next batches. Raises ``OSError``."""
        position = self._file.size
        if batches:
            self._file.append([batch.data for batch in batches])
        for batch in batches:
            header = batch.header
            if header.base_offset != self._following:
                raise InvariantViolated(f"{self._path}: {header.base_offset} in place of {self._following}")
            self._index.note(header.base_offset, position, self._newest_ms)
            self._newest_ms = max(self._newest_ms, header.newest_ms)
            self._following = header.last_offset + 1
            position += header.size_bytes

    def finish(self) -> RewrittenSegment:
        """Sync and close the file. Raises ``OSError``."""
        base, last = self._old[0].base, self._old[-1].last
        if self._following != last + 1:
            raise InvariantViolated(f"{self._path}: ends before {self._following}, not before {last + 1}")
        self._file.sync()
        stored_ms = max(segment.stored_ms for segment in self._old)
        summary = SegmentSummary(base, last, self._file.size, self._newest_ms, stored_ms)
        self._file.close()
        return RewrittenSegment(self._old, self._path, summary, self._index)

    def abandon(self) -> None:
        """Close the new file and remove it."""
        self._file.close()
        self._filesystem.remove(self._path)


def compacted_files(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of compacted files that a crash has left, half-written or not renamed."""
    return (name for name in names if name.endswith(LOG_SUFFIX + COMPACTED_SUFFIX))


def joining_path(directory: str, base: int, last: int) -> str:
    """Path of the empty file that records a join of the segments ``base..last``: see ``joined_segments``."""
    return f"{directory}/{base:020d}-{last:020d}{JOINING_SUFFIX}"


def joined_segments(filesystem: Filesystem, directory: str, names: Sequence[str]) -> set[int]:
    """The bases of segments that were joined into another segment, but whose files a crash has left.

    A segment counts as joined only if every checksum of the new file is right up to its end.
    """
    joined = set[int]()
    for name in joining_files(names):
        base, last = map(int, name.removesuffix(JOINING_SUFFIX).split("-"))
        bases = {int(other[: -len(LOG_SUFFIX)]) for other in names if other.endswith(LOG_SUFFIX)}
        left = {other for other in bases if base < other <= last}
        if left and base in bases and _ends_with(filesystem, segment_path(directory, base), base, last):
            joined |= left
    return joined


def joining_files(names: Sequence[str]) -> list[str]:
    """Names of files that record a join, which a crash may have interrupted."""
    return [name for name in names if name.endswith(JOINING_SUFFIX)]


def _ends_with(filesystem: Filesystem, path: str, base: int, last: int) -> bool:
    file = filesystem.open(path + LOG_SUFFIX)
    end = base - 1
    try:
        for _, batch in walk_file(file, base):
            end = batch.last_offset
    except BatchDamaged:
        return False
    finally:
        file.close()
    return end == last


def _opened(filesystem: Filesystem, path: str, size_bytes: int) -> File:
    try:
        file = filesystem.open(path)
    except FileNotFoundError:
        raise LogCorrupt(f"{path}: the file is missing") from None
    if file.size < size_bytes:
        file.close()
        raise LogCorrupt(f"{path}: the file has {file.size} bytes, but should have {size_bytes}")
    return file
