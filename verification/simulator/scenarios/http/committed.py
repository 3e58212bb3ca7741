"""The committed user records of a partition, decoded from the bytes on the disks."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from raftlog.errors import CorruptBatch
from raftlog.records.batch import Batch, parse_header
from raftlog.records.reader import read_rows
from raftlog.testing.stored_file import StoredFile
from verification.simulator.log_view import Entry, LogView
from verification.simulator.records import GroupRecord


class Row(NamedTuple):
    """One committed record of a user."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    crc: int  # of its batch
    is_append_time: bool


class Committed:
    """The committed records of users in one partition; ``extend`` adds newly committed records.

    Entries that are deleted before they are decoded are missing.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.end = 0  # one past the last committed record
        self.known_from = 0  # earlier records were deleted before they could be decoded
        self._offsets: list[int] = []
        self._entries = 0
        self._file: StoredFile | None = None  # where to look for the next batch first
        self._position = 0

    def extend(self, group: GroupRecord) -> None:
        """Read the entries that were committed since the last call."""
        for entry in group.committed[self._entries :]:
            batch = self._find(group, entry)
            if batch is None:
                self.known_from = entry.last + 1
            elif not batch.header.is_control:
                rows = read_rows(Row, batch, after=(batch.header.crc, batch.header.is_append_time))
                self.rows += rows
                self._offsets += [row.offset for row in rows]
            self.end = entry.last + 1
        self._entries = len(group.committed)

    def between(self, first: int, end: int) -> list[Row]:
        """Return the records with offsets from ``first`` to ``end`` - 1."""
        return self.rows[bisect_left(self._offsets, first) : bisect_left(self._offsets, end)]

    def first_of_last(self, count: int, end: int) -> int:
        """Return the offset at which the last ``count`` records below an end begin; 0 if fewer records are
        known.
        """
        place = bisect_left(self._offsets, end) - count
        return self._offsets[place] if place >= 0 else 0

    def at(self, offset: int) -> Row | None:
        """Return the record at an offset; None if the offset has no user record."""
        place = bisect_left(self._offsets, offset)
        found = self.rows[place] if place < len(self.rows) else None
        return found if found is not None and found.offset == offset else None

    def _find(self, group: GroupRecord, entry: Entry) -> Batch | None:
        """Return the batch of a committed entry. Another, uncommitted batch may be at its offset on some
        replicas.
        """
        for replica in group.replicas.values():
            replica.look(group, durable=False)
            batch = self._read(replica.seen, entry.base)
            if batch is not None and _names(batch) == entry:
                return batch
        return None

    def _read(self, view: LogView, base: int) -> Batch | None:
        segments = [segment for segment in view._segments if segment.base <= base]
        if not segments:
            return None
        segment = segments[-1]
        content = segment.file.seen
        starts = (self._position, 0) if segment.file is self._file else (0,)
        for start in starts:  # where the file was truncated and written again, only its beginning is certain
            position = _position_of(content, start, segment.end, base)
            if position is not None:
                data = bytes(content[position : position + parse_header(content, position).size_bytes])
                self._file, self._position = segment.file, position + len(data)
                return Batch(data, parse_header(data))
        return None


def _names(batch: Batch) -> Entry:
    header = batch.header
    return Entry(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


def _position_of(content: bytearray, position: int, end: int, base: int) -> int | None:
    """Return the position of the batch at an offset, or None. The search begins at the start of a batch."""
    while position < end:
        try:
            header = parse_header(content, position)
        except CorruptBatch:
            return None
        if header.base_offset >= base:
            return position if header.base_offset == base else None
        position += header.size_bytes
    return None
