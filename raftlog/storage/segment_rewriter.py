"""Reading a closed segment, and writing it again beside the old file, in steps on any thread.

Decides: what is checked of a segment before it is copied. Leaves to others: which records stay
(``compaction``) and when the new file takes the place of the old one (``SegmentedLog.replace_change``).

    <base>.log.compacted   the new file: written, synced, then renamed to <base>.log

A crash before the rename leaves the old segment, and a file that is removed when the log is opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.records.batch import Batch
from raftlog.storage.batch_walk import BatchDamaged, walk_batches
from raftlog.storage.filesystem import File, Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment import LOG_SUFFIX, segment_path
from raftlog.storage.sparse_index import SegmentSummary, SparseIndex
from raftlog.types import EntryId

COMPACTED_SUFFIX: Final = ".compacted"


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
        """The next batches, at least one until the end, about ``bytes_max``. Raises ``LogCorrupt``."""
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
    """A synced file that may take the place of ``old``."""

    old: ClosedSegment
    path: str
    summary: SegmentSummary
    index: SparseIndex


class SegmentRewriter:
    """The new file of one segment. Blocks; the log does not know of it before ``replace_change``."""

    def __init__(
        self, filesystem: Filesystem, directory: str, segment: ClosedSegment, index_interval_bytes: int
    ) -> None:
        self._filesystem = filesystem
        self._old = segment
        self._path = segment_path(directory, segment.base) + LOG_SUFFIX + COMPACTED_SUFFIX
        self._index = SparseIndex(index_interval_bytes)
        self._newest_ms = -1
        self._following: int = segment.base
        filesystem.remove(self._path)
        self._file: File = filesystem.open(self._path, create=True)

    @property
    def size(self) -> int:
        """Bytes written."""
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
        old = self._old
        if self._following != old.last + 1:
            raise InvariantViolated(f"{self._path}: ends before {self._following}, not before {old.last + 1}")
        self._file.sync()
        summary = SegmentSummary(old.base, old.last, self._file.size, self._newest_ms, old.stored_ms)
        self._file.close()
        return RewrittenSegment(old, self._path, summary, self._index)

    def abandon(self) -> None:
        """Leave no trace."""
        self._file.close()
        self._filesystem.remove(self._path)


def compacted_files(names: Sequence[str]) -> Iterator[str]:
    """Files that a crash has left half written, or written and not renamed."""
    return (name for name in names if name.endswith(LOG_SUFFIX + COMPACTED_SUFFIX))


def _opened(filesystem: Filesystem, path: str, size_bytes: int) -> File:
    try:
        file = filesystem.open(path)
    except FileNotFoundError:
        raise LogCorrupt(f"{path}: the file is gone") from None
    if file.size < size_bytes:
        file.close()
        raise LogCorrupt(f"{path}: has {file.size} bytes in place of {size_bytes}")
    return file
