"""Every byte that is read from a segment is checked, and read once, in large blocks."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple

import pytest

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt, OffsetOutOfRange
from raftlog.repair.scrubbing import check_range, scrub_ranges
from raftlog.storage.filesystem import Buffer, File
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.sparse_index import INDEX_INTERVAL_BYTES
from raftlog.testing.fake_filesystem import FakeFile, FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix, truncate_suffix
from raftlog.types import Index, NodeId, Term
from tests.helpers.log_files import index_at_time, sync
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.profiled import profiled
from tests.helpers.storage_batches import storage_batch

BATCH = len(storage_batch(0).data)
SETTINGS = LogSettings(segment_bytes=4 * BATCH, index_interval_bytes=2 * BATCH)
ACTIVE = "/log/00000000000000000004.log"
CLOSED = "/log/00000000000000000000.log"


def log_of(disk: FakeFilesystem, batches: int = 7) -> SegmentedLog:
    """Four batches in a closed segment, the rest in the active one; the newest term begins in each."""
    log = SegmentedLog.open(disk, "/log", SETTINGS, ManualWallClock())
    log.save_hard_state(HardState(Term(2), None))
    for base in range(batches):
        log.append([storage_batch(base, epoch=1 if base < 5 else 2, timestamp_ms=10 * base)])
    sync(log)
    return log


def scrub(disk: FakeFilesystem, log: SegmentedLog) -> None:
    for rested in scrub_ranges(log):
        check_range(disk, rested, log.terms(), (0, rested.first), 1 << 20)


def memory_of(size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes))


# requirement: M3
@pytest.mark.parametrize(("path", "first", "last"), [(CLOSED, 0, 3), (ACTIVE, 4, 6)])
def test_a_flipped_bit_anywhere_is_found_by_every_read_and_by_the_scrub(
    path: str, first: int, last: int
) -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    located = log.read(Index(first), Index(last), bytes_max=1 << 20)
    whole = located.read()
    scrub(disk, log)
    for position in range(len(whole)):
        bit = position % 8
        disk.flip_bit(path, position, bit)
        with pytest.raises(LogCorrupt):
            log.read(Index(first), Index(last), bytes_max=1 << 20).read()
        with pytest.raises(LogCorrupt):
            log.part(Index(first), 1 << 20).read(Index(first), Index(last), bytes_max=1 << 20).read()
        with pytest.raises(LogCorrupt):
            scrub(disk, log)
        pieces = located.pieces(memory_of(3 * BATCH // 2))
        given = b"".join(bytes(next(pieces)) for _ in range(position // BATCH))
        with pytest.raises(LogCorrupt):
            next(pieces)
        assert given == whole[: position // BATCH * BATCH]  # the sound batches before
        disk.flip_bit(path, position, bit)
    assert log.read(Index(first), Index(last), bytes_max=1 << 20).read() == whole


@pytest.mark.parametrize("memory_bytes", [1, BATCH, 2 * BATCH - 1, 3 * BATCH + 61, 9 * BATCH])
def test_pieces_are_whole_batches_of_one_segment_after_another(memory_bytes: int) -> None:
    log = log_of(FakeFilesystem(), batches=10)
    found = log.read(Index(1), Index(9), bytes_max=1 << 20)
    pieces = [bytes(piece) for piece in found.pieces(memory_of(memory_bytes))]
    assert b"".join(pieces) == found.read()
    assert {len(piece) % BATCH for piece in pieces} == {0}
    assert max(map(len, pieces)) <= max(memory_bytes, BATCH)


# requirement: M3
@pytest.mark.parametrize("path", [CLOSED, ACTIVE])
def test_a_damaged_timestamp_hides_no_record_from_a_search_by_time(path: str) -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    sought = 20 if path == CLOSED else 50
    assert index_at_time(log, sought) == (sought // 10, sought)
    disk.flip_bit(path, (BATCH if path == ACTIVE else 2 * BATCH) + 42, 4)  # 16 earlier
    with pytest.raises(LogCorrupt):
        index_at_time(log, sought)


def test_a_scrub_reads_the_active_segment_as_far_as_it_is_durable() -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    log.append([storage_batch(7, epoch=2)])
    assert [(each.first, each.last) for each in scrub_ranges(log)] == [(0, 3), (4, 6)]
    sync(log)
    assert [(each.first, each.last) for each in scrub_ranges(log)] == [(0, 3), (4, 7)]
    log.append([storage_batch(8, epoch=2)])
    assert [(each.first, each.last) for each in scrub_ranges(log)] == [(0, 3), (4, 7), (8, 7)]
    scrub(disk, log)


def test_where_the_newest_places_are_not_known_the_scrub_ends_a_little_before() -> None:
    disk = FakeFilesystem()
    log = SegmentedLog.open(disk, "/log", LogSettings(index_interval_bytes=8 * BATCH), ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    log.append([storage_batch(base) for base in range(20)])
    sync(log)
    log.append([storage_batch(base) for base in range(20, 2000)])
    (active,) = scrub_ranges(log)
    assert (active.first, active.last, active.size) == (0, 15, 16 * BATCH)
    scrub(disk, log)


def test_only_the_newest_batches_are_recent() -> None:
    log = log_of(FakeFilesystem())
    assert log.recent(Index(0), Index(6), bytes_max=1 << 20) is None
    assert log.recent(Index(3), Index(6), bytes_max=1 << 20) is None
    found = log.recent(Index(5), Index(6), bytes_max=1 << 20)
    assert found is not None
    assert (found.first, found.last, found.size_bytes) == (5, 6, 2 * BATCH)
    assert log.recent(Index(6), Index(7), bytes_max=1) is None


def test_nothing_is_read_from_the_disk_for_a_recent_range() -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    disk.fails_read = lambda path: True
    assert log.recent(Index(4), Index(5), bytes_max=1 << 20) is not None


def test_a_part_reads_what_was_there_whatever_becomes_of_the_log() -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    whole = log.read(Index(0), Index(6), bytes_max=1 << 20).read()
    part = log.part(Index(0), 1 << 20)
    for base in range(7, 12):
        log.append([storage_batch(base, epoch=2)])  # the active segment closes
    assert part.read(Index(0), Index(6), bytes_max=1 << 20).read() == whole
    before = log.removals
    truncate_suffix(log, Index(9))
    assert log.removals == before + 1
    truncate_suffix(log, Index(7))  # into a segment that was closed: it is the active one again
    assert part.read(Index(0), Index(6), bytes_max=1 << 20).read() == whole
    log.close()
    assert part.read(Index(0), Index(6), bytes_max=1 << 20).read() == whole


def test_a_part_of_what_is_removed_gives_an_error_and_never_other_bytes() -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    part, newest = log.part(Index(0), 1 << 20), log.part(Index(5), 1 << 20)
    before = log.removals
    truncate_suffix(log, Index(5))
    log.append([storage_batch(5, epoch=2, body=b"else"), storage_batch(6, epoch=2, body=b"else")])
    assert truncate_prefix(log, Index(4)) == 4
    assert log.removals == before + 2
    with pytest.raises(LogCorrupt):
        part.read(Index(0), Index(3), bytes_max=1 << 20)
    truncate_suffix(log, Index(6))
    with pytest.raises(LogCorrupt):
        newest.read(Index(5), Index(6), bytes_max=1 << 20).read()
    with pytest.raises(OffsetOutOfRange):
        log.part(Index(0), 1 << 20)


def test_a_part_ends_where_its_bytes_are_used_up() -> None:
    log = log_of(FakeFilesystem(), batches=20)
    for first in range(20):
        for bytes_max in (0, 1, BATCH, 2 * BATCH, 4 * BATCH, 9 * BATCH):
            expected = log.read(Index(first), Index(19), bytes_max=bytes_max)
            part = log.part(Index(first), bytes_max)
            found = part.read(Index(first), Index(19), bytes_max=bytes_max)
            assert (found.first, found.last, found.read()) == (expected.first, expected.last, expected.read())


def test_the_index_that_one_reader_has_loaded_serves_the_next() -> None:
    disk = FakeFilesystem()
    log = log_of(disk, batches=10)
    part = log.part(Index(1), BATCH)
    part.read(Index(1), Index(1), bytes_max=BATCH).read()
    part.finished()
    disk.fails_read = lambda path: path.endswith(".index")
    part = log.part(Index(2), BATCH)
    assert part.read(Index(2), Index(2), bytes_max=BATCH).first == 2


def test_readers_of_old_segments_leave_few_indexes_in_memory() -> None:
    log = log_of(FakeFilesystem(), batches=80)
    for first in range(0, 80, 2):
        part = log.part(Index(first), 1)
        part.read(Index(first), Index(first), bytes_max=1)
        part.finished()
        log.read(Index(first), Index(first), bytes_max=1).read()
    loaded = [segment.base for segment in log._segments.closed if segment.has_index_loaded]
    assert loaded == [60, 64, 68, 72]  # of the last four that were read; 76 and on is active


# requirement: M3
@pytest.mark.parametrize("first_removed", [2, 3, 6])
def test_what_is_kept_is_read_while_the_disk_cuts_the_rest_off(first_removed: int) -> None:
    """Also from a closed segment, whose file is then shorter than when it was closed."""
    disk = FakeFilesystem()
    log = log_of(disk)
    log.cut(Index(first_removed))
    change = log.cut_change()
    assert change is not None
    change.run()
    last = Index(first_removed - 1)
    kept = log.read(Index(0), last, bytes_max=1 << 20).read()
    assert len(kept) == first_removed * BATCH
    change.finish()
    assert log.read(Index(0), last, bytes_max=1 << 20).read() == kept


BODY = bytes(1_000)
LARGE_BATCH = len(storage_batch(0, body=BODY).data)
LARGE_SETTINGS = LogSettings(segment_bytes=64 * LARGE_BATCH)
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
    log = SegmentedLog.open(disk, "/log", LARGE_SETTINGS, ManualWallClock())
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
        assert write.length == GROUP * LARGE_BATCH
        assert write.position == ends.get(write.path, 0)
        ends[write.path] = write.end
    assert list(ends.values()) == [LARGE_SETTINGS.segment_bytes] * 3


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
        found = log.read(following, log.last_index, bytes_max=GROUP * LARGE_BATCH)
        assert len(found.read()) == GROUP * LARGE_BATCH
        following = Index(found.last + 1)
    blocks = [read for read in disk.reads if read.length > INDEX_INTERVAL_BYTES]
    places = [(f"/log/{base:020d}.log", number) for base in (0, 64, 128) for number in range(4)]
    assert blocks == [
        Access(path, number * GROUP * LARGE_BATCH, GROUP * LARGE_BATCH) for path, number in places
    ]


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
        assert len(found.read()) == GROUP * LARGE_BATCH
        assert [(read.position, read.length) for read in disk.reads] == [
            (GROUP * LARGE_BATCH, GROUP * LARGE_BATCH)
        ]


def calls_of_read(records: int, *, in_pieces: bool) -> int:
    """Calls of Python functions for one read of a batch with so many records."""
    log = open_log(WatchedDisk())
    batch = storage_batch(0, records, body=bytes(100 * records))
    log.append([batch])
    calls, memory = 0, memory_of(2 << 20)

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    with profiled(note):
        found = log.read(Index(0), Index(records - 1), bytes_max=1 << 20)
        data = b"".join(found.pieces(memory)) if in_pieces else found.read()
    assert data == batch.data
    return calls


# requirement: L7
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_read_gives_the_stored_bytes_without_a_call_for_any_record(in_pieces: bool) -> None:
    assert calls_of_read(10_000, in_pieces=in_pieces) == calls_of_read(1, in_pieces=in_pieces)
