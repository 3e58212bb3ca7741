"""Every byte that is read from a segment is checked, and a part of a log serves another thread."""

from __future__ import annotations

import pytest

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt, OffsetOutOfRange
from raftlog.repair.scrubbing import check_range, scrub_ranges
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index, Term
from tests.helpers.log_files import sync
from tests.helpers.manual_wall_clock import ManualWallClock
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


# requirement: M3
@pytest.mark.parametrize(("path", "first", "last"), [(CLOSED, 0, 3), (ACTIVE, 4, 6)])
def test_a_flipped_bit_anywhere_is_found_by_every_read_and_by_the_scrub(
    path: str, first: int, last: int
) -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    whole = log.read(Index(first), Index(last), bytes_max=1 << 20).read()
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
        disk.flip_bit(path, position, bit)
    assert log.read(Index(first), Index(last), bytes_max=1 << 20).read() == whole


# requirement: M3
@pytest.mark.parametrize("path", [CLOSED, ACTIVE])
def test_a_damaged_timestamp_hides_no_record_from_a_search_by_time(path: str) -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    sought = 20 if path == CLOSED else 50
    assert log.index_at_time(sought) == (sought // 10, sought)
    disk.flip_bit(path, (BATCH if path == ACTIVE else 2 * BATCH) + 42, 4)  # 16 earlier
    with pytest.raises(LogCorrupt):
        log.index_at_time(sought)


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
    log.truncate_suffix(Index(9))
    assert log.removals == before + 1
    log.truncate_suffix(Index(7))  # into a segment that was closed: it is the active one again
    assert part.read(Index(0), Index(6), bytes_max=1 << 20).read() == whole
    log.close()
    assert part.read(Index(0), Index(6), bytes_max=1 << 20).read() == whole


def test_a_part_of_what_is_removed_gives_an_error_and_never_other_bytes() -> None:
    disk = FakeFilesystem()
    log = log_of(disk)
    part, newest = log.part(Index(0), 1 << 20), log.part(Index(5), 1 << 20)
    before = log.removals
    log.truncate_suffix(Index(5))
    log.append([storage_batch(5, epoch=2, body=b"else"), storage_batch(6, epoch=2, body=b"else")])
    assert log.truncate_prefix(Index(4)) == 4
    assert log.removals == before + 2
    with pytest.raises(LogCorrupt):
        part.read(Index(0), Index(3), bytes_max=1 << 20)
    log.truncate_suffix(Index(6))
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
