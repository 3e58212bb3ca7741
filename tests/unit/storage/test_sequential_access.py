"""A log writes large blocks at its end and reads forwards, each byte once, from the page cache alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple

import pytest

from raftlog.core.ready import HardState
from raftlog.storage.filesystem import Buffer, File
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.sparse_index import INDEX_INTERVAL_BYTES
from raftlog.testing.fake_filesystem import FakeFile, FakeFilesystem
from raftlog.types import Index, NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

BODY = bytes(1_000)
BATCH = len(storage_batch(0, body=BODY).data)
SETTINGS = LogSettings(segment_bytes=64 * BATCH)
GROUP = 16  # batches of one append


class Access(NamedTuple):
    """One read or write of a segment's file."""

    path: str
    position: int
    length: int

    @property
    def end(self) -> int:
        """Position behind the last byte."""
        return self.position + self.length


class WatchedFile(FakeFile):
    """A file that notes its reads and writes in its disk."""

    def __init__(self, disk: WatchedDisk, file: FakeFile) -> None:
        super().__init__(disk, file.path, file._node)
        self._disk = disk

    def append(self, buffers: Sequence[Buffer]) -> int:
        start = super().append(buffers)
        self._disk.writes.append(Access(self.path, start, sum(map(len, buffers))))
        return start

    def read_at(self, position: int, length: int) -> bytes:
        self._disk.reads.append(Access(self.path, position, length))
        return super().read_at(position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        self._disk.overwrites.append(Access(self.path, position, len(data)))
        super().write_at(position, data)


class WatchedDisk(FakeFilesystem):
    """A disk that notes each access to the files of segments."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Access] = []
        self.reads: list[Access] = []
        self.overwrites: list[Access] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, FakeFile)
        return WatchedFile(self, file) if path.endswith(".log") else file


def open_log(disk: WatchedDisk) -> SegmentedLog:
    log = SegmentedLog.open(disk, "/log", SETTINGS, ManualWallClock())
    log.save_hard_state(HardState(Term(1), NodeId(1)))
    return log


def append_groups(log: SegmentedLog, groups: int) -> None:
    """Append batches as a leader does that has gathered some while the disk was busy."""
    for _ in range(groups):
        log.append([storage_batch(log.last_index + 1 + number, body=BODY) for number in range(GROUP)])


# requirement: L5
def test_batches_that_come_together_are_one_write_at_the_end_of_the_file() -> None:
    disk = WatchedDisk()
    append_groups(open_log(disk), 12)
    assert len(disk.writes) == 12
    assert disk.overwrites == []
    ends: dict[str, int] = {}
    for write in disk.writes:
        assert write.length == GROUP * BATCH
        assert write.position == ends.get(write.path, 0)
        ends[write.path] = write.end
    assert list(ends.values()) == [SETTINGS.segment_bytes] * 3


def reopened(disk: WatchedDisk) -> SegmentedLog:
    """The log of an earlier process: no place of a batch is in memory."""
    log = open_log(disk)
    append_groups(log, 12)
    log.close()
    return open_log(disk)


# requirement: L5
def test_a_reader_of_the_whole_log_reads_each_byte_once_in_order() -> None:
    disk = WatchedDisk()
    log = reopened(disk)
    disk.reads.clear()
    following = Index(0)
    while following <= log.last_index:
        found = log.read(following, log.last_index, bytes_max=GROUP * BATCH)
        assert len(found.read()) == GROUP * BATCH
        following = Index(found.last + 1)
    blocks = [read for read in disk.reads if read.length > INDEX_INTERVAL_BYTES]
    places = [(f"/log/{base:020d}.log", number) for base in (0, 64, 128) for number in range(4)]
    assert blocks == [Access(path, number * GROUP * BATCH, GROUP * BATCH) for path, number in places]


# requirement: L6
@pytest.mark.parametrize("offset", [0, 1, 31, 62, 63, 64, 127, 130, 191])
def test_an_offset_is_found_by_a_look_at_one_interval_of_the_index(offset: int) -> None:
    disk = WatchedDisk()
    log = reopened(disk)
    disk.reads.clear()
    found = log.read(Index(offset), Index(offset), bytes_max=1)
    assert (found.first, found.last) == (offset, offset)
    (place,) = found.runs
    assert len(disk.reads) <= 3  # the first batch, the last one, and the end of the bytes wanted
    assert all(0 <= place.position - read.position <= INDEX_INTERVAL_BYTES for read in disk.reads)


# requirement: L5
def test_a_read_of_the_tail_is_one_read_of_the_file_and_nothing_is_kept_for_the_next() -> None:
    disk = WatchedDisk()
    log = open_log(disk)
    append_groups(log, 2)
    for _ in range(3):
        disk.reads.clear()
        found = log.recent(Index(GROUP), log.last_index, bytes_max=1 << 20)
        assert found is not None
        assert len(found.read()) == GROUP * BATCH
        assert [(read.position, read.length) for read in disk.reads] == [(GROUP * BATCH, GROUP * BATCH)]


def calls_of_read(records: int) -> int:
    """Calls of Python functions for one read of a batch with so many records."""
    log = open_log(WatchedDisk())
    batch = storage_batch(0, records, body=bytes(100 * records))
    log.append([batch])
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        data = log.read(Index(0), Index(records - 1), bytes_max=1 << 20).read()
    finally:
        sys.setprofile(None)
    assert data == batch.data
    return calls


# requirement: L7
def test_a_read_gives_the_stored_bytes_without_a_call_for_any_record() -> None:
    assert calls_of_read(10_000) == calls_of_read(1)
