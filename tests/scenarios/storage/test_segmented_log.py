"""Segments of a log: where they are, when they close, what faults of the disk do to them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.records.batch import check_batch, split_batches
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.sparse_index import NOT_DATED
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix, truncate_suffix
from raftlog.types import Index, Term
from tests.helpers.log_files import index_at_time, sync
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

BATCH = len(storage_batch(0).data)
SETTINGS = LogSettings(segment_bytes=4 * BATCH, segment_ms=1000, index_interval_bytes=BATCH)


def open_log(
    filesystem: Filesystem, directory: str = "/log", clock: ManualWallClock | None = None
) -> SegmentedLog:
    log = SegmentedLog.open(filesystem, directory, SETTINGS, clock or ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    return log


def append(log: SegmentedLog, batches: int) -> None:
    for _ in range(batches):
        log.append([storage_batch(log.last_index + 1, timestamp_ms=1_000_000)])


# requirement: L1, L2, L3
def test_a_partition_folder_holds_segments_named_by_their_first_offset(tmp_path: Path) -> None:
    directory = tmp_path / f"orders-{'0' * 32}" / "Partition-0"
    log = open_log(OsFilesystem(), str(directory))
    append(log, 10)
    sync(log)
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000004.index",
        "00000000000000000004.log",
        "00000000000000000008.log",
        "epochs",
        "hard_state.a",
        "hard_state.b",
    ]
    log.close()


# requirement: L2, L4
def test_closed_segments_are_never_written_again(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(), str(tmp_path))
    append(log, 5)
    closed = tmp_path / "00000000000000000000.log"
    before = closed.read_bytes(), closed.stat().st_mtime_ns
    append(log, 20)
    sync(log)
    log.close()
    assert (closed.read_bytes(), closed.stat().st_mtime_ns) == before


# requirement: L7, L8
def test_segment_files_hold_batches_back_to_back_and_nothing_else(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(), str(tmp_path))
    append(log, 10)
    log.close()
    stored = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log")))
    batches = split_batches(stored)
    assert [batch.base_offset for batch in batches] == list(range(10))
    for batch in batches:
        check_batch(batch)


# requirement: L2
def test_a_segment_closes_by_age_when_something_is_appended_or_when_asked() -> None:
    clock = ManualWallClock()
    log = open_log(FakeFilesystem(), clock=clock)
    append(log, 1)
    assert not log.roll_if_due()
    clock.now_ms += 1000
    append(log, 1)
    assert [segment.last for segment in log.closed_segments] == [0]
    clock.now_ms += 1000
    assert log.roll_if_due()
    assert not log.roll_if_due()
    assert [segment.last for segment in log.closed_segments] == [0, 1]
    assert (log.first_index, log.last_index) == (0, 1)
    assert log.read(Index(1), Index(1), bytes_max=1).last == 1


def test_one_append_may_fill_several_segments() -> None:
    log = open_log(FakeFilesystem())
    log.append([storage_batch(at) for at in range(11)])
    assert [segment.base for segment in log.closed_segments] == [0, 4]
    assert log.read(Index(0), Index(10), bytes_max=1 << 20).last == 10


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_log(FakeFilesystem())
    log.append([storage_batch(0), storage_batch(1, body=bytes(1000)), storage_batch(2)])
    assert [segment.base for segment in log.closed_segments] == [0, 1]
    assert log.read(Index(1), Index(2), bytes_max=1).last == 1


@pytest.mark.parametrize("room", range(-1, 11))
def test_a_full_disk_takes_whole_batches_in_order_and_the_log_goes_on_once_there_is_room(room: int) -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 2)
    sync(log)
    filesystem.capacity_bytes = filesystem.used_bytes + room * BATCH
    if room < 10:
        with pytest.raises(OSError, match="no room"):
            log.append([storage_batch(at) for at in range(2, 12)])
        assert 1 <= log.last_index <= 1 + max(0, room)
        assert log.read(Index(0), log.last_index, bytes_max=1 << 20).last == log.last_index
    filesystem.capacity_bytes = None
    append(log, 12 - log.last_index - 1)
    sync(log)
    filesystem.restart()
    found = open_log(filesystem)
    assert found.last_index == 11
    assert found.read(Index(0), Index(11), bytes_max=1 << 20).last == 11


def test_a_term_can_change_on_a_full_disk() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    filesystem.capacity_bytes = 0
    log.save_hard_state(HardState(Term(2), None))
    sync(log)
    filesystem.restart()
    again = SegmentedLog.open(filesystem, "/log", SETTINGS, ManualWallClock())
    assert again.restored(Membership(frozenset())).hard_state.term == 2


# fault: a sync that failed must never be tried again
def test_after_a_failed_sync_nothing_is_promised_and_no_later_sync_succeeds() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 1)
    sync(log)
    append(log, 1)
    filesystem.fails_sync = lambda path: path.endswith(".log")
    flush = log.take_sync()
    assert flush is not None
    with pytest.raises(OSError, match="on purpose"):
        flush.run()
    filesystem.fails_sync = lambda path: False
    with pytest.raises(OSError, match="syncs are not retried"):
        flush.run()
    append(log, 1)
    later = log.take_sync()
    assert later is not None
    with pytest.raises(OSError, match="syncs are not retried"):
        later.run()
    assert log.durable_index == 0
    log.close()


def test_an_unreadable_disk_is_an_error_and_never_wrong_data() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 10)
    found = log.read(Index(0), Index(9), bytes_max=1 << 20)
    filesystem.fails_read = lambda path: True
    with pytest.raises(OSError, match="on purpose"):
        found.read()


def test_a_reader_whose_file_was_cut_is_told_so() -> None:
    log = open_log(FakeFilesystem())
    append(log, 3)
    found = log.read(Index(0), Index(2), bytes_max=1 << 20)
    truncate_suffix(log, Index(1))
    with pytest.raises(LogCorrupt, match="cut the file while it was read"):
        found.read()


# requirement: RT4
def test_a_reader_of_a_deleted_segment_finishes_undisturbed(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(), str(tmp_path))
    append(log, 12)
    sync(log)
    found = log.read(Index(0), Index(5), bytes_max=1 << 20)
    assert truncate_prefix(log, Index(8)) == 8
    assert [batch.base_offset for batch in split_batches(found.read())] == [0, 1, 2, 3, 4, 5]
    assert sorted(path.name for path in tmp_path.glob("*.log"))[0] == f"{8:020d}.log"
    log.close()


def test_a_sync_on_another_thread_runs_beside_appends_rolls_and_cuts(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(), str(tmp_path))
    for turn in range(30):
        append(log, 3)
        flush = log.take_sync()
        assert flush is not None
        thread = threading.Thread(target=flush.run)
        thread.start()
        append(log, 2)
        if turn % 5 == 4:
            truncate_suffix(log, Index(log.last_index - 6))
        thread.join()
        log.sync_finished(flush)
    last = log.last_index
    log.close()
    again = open_log(OsFilesystem(), str(tmp_path))
    assert again.last_index == last
    assert again.recovery.torn_tail is None
    again.close()


def test_an_idle_log_keeps_no_file_open_but_its_active_segment(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(), str(tmp_path))
    append(log, 30)
    sync(log)
    log.read(Index(0), Index(29), bytes_max=1 << 20).read()
    index_at_time(log, 0)
    open_files = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert [path.name for path in open_files if path.parent == tmp_path] == [f"{28:020d}.log"]
    log.close()


def test_a_stop_in_order_writes_the_commit_hint() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 6)
    sync(log)
    log.note_commit_index(Index(5))
    log.close()
    assert open_log(filesystem).restored(Membership(frozenset())).commit_hint == 5


def test_a_commit_index_beyond_what_is_durable_here_is_not_hinted() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 3)
    log.note_commit_index(Index(9))
    sync(log)
    filesystem.restart()
    assert open_log(filesystem).restored(Membership(frozenset())).commit_hint == 2


def test_an_epochs_file_that_found_no_room_is_written_by_a_later_sync() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 5)
    filesystem.capacity_bytes = filesystem.used_bytes
    sync(log)
    assert not filesystem.exists("/log/epochs")
    assert log.durable_index == 4
    filesystem.capacity_bytes = None
    append(log, 1)
    sync(log)
    assert filesystem.exists("/log/epochs")


def test_new_settings_count_from_the_next_append_on() -> None:
    clock = ManualWallClock()
    log = open_log(FakeFilesystem(), clock=clock)
    append(log, 1)
    clock.now_ms += 500
    log.reconfigure(LogSettings(segment_ms=400, segment_bytes=4 * BATCH))
    append(log, 1)
    assert [segment.last for segment in log.closed_segments] == [0]


def stored(log: SegmentedLog) -> list[int]:
    return [segment.stored_ms for segment in log.closed_segments]


# requirement: RT2
def test_a_segment_knows_when_it_was_stored_whatever_times_producers_give() -> None:
    filesystem, clock = FakeFilesystem(), ManualWallClock(5_000_000)
    log = open_log(filesystem, clock=clock)
    append(log, 4)
    clock.now_ms = 6_000_000
    append(log, 5)
    assert stored(log) == [5_000_000, 6_000_000]
    assert [segment.max_timestamp for segment in log.closed_segments] == [1_000_000, 1_000_000]
    log.close()
    clock.now_ms = 9_000_000
    again = open_log(filesystem, clock=clock)
    assert stored(again) == [5_000_000, 6_000_000]
    clock.now_ms += SETTINGS.segment_ms
    assert again.roll_if_due()
    assert stored(again)[2] == NOT_DATED
    again.date(9_000_000)
    assert stored(again) == [5_000_000, 6_000_000, 9_000_000]


# requirement: RT2
def test_what_comes_while_the_time_is_not_known_is_dated_once_it_is() -> None:
    clock = ManualWallClock(5_000_000)
    clock.is_known = False
    log = open_log(FakeFilesystem(), clock=clock)
    append(log, 5)
    assert stored(log) == [NOT_DATED]
    log.date(7_000_000)
    assert stored(log) == [7_000_000]


# requirement: L9
@pytest.mark.parametrize("first_removed", [9, 13, 17])
def test_a_cut_that_comes_while_old_segments_are_removed_finds_its_segment(first_removed: int) -> None:
    """Its position in the list of segments is another one once they are gone."""
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, 18)  # segments begin at 0, 4, 8, 12 and 16
    sync(log)
    removal = log.prefix_change(Index(8))
    assert removal is not None
    removal.run()
    log.cut(Index(first_removed))
    removal.finish()
    cut = log.cut_change()
    assert cut is not None
    cut.run()
    cut.finish()
    log.save_hard_state(HardState(Term(2), None))
    later = [storage_batch(at, epoch=2) for at in range(first_removed, first_removed + 9)]
    for batch in later:
        log.append([batch])
    sync(log)
    kept = [log.read(Index(at), Index(at), bytes_max=1).read() for at in range(8, log.last_index + 1)]
    assert kept[first_removed - 8 :] == [batch.data for batch in later]
    filesystem.restart()
    again = open_log(filesystem)
    assert (again.first_index, again.last_index) == (8, first_removed + 8)
    assert [
        again.read(Index(at), Index(at), bytes_max=1).read() for at in range(8, again.last_index + 1)
    ] == kept
