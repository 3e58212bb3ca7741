"""Which segments may go, and when a sync notes how far the log is durable."""

from __future__ import annotations

from raftlog.core.ready import HardState
from raftlog.hosting.opener import make_durable
from raftlog.storage.durable_state import found_slots, newest_slot
from raftlog.storage.retention import ClosedSegment, RetentionLimits, first_index_to_keep
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index, NodeId, Term
from tests.helpers.log_files import DIRECTORY, append, open_log

NOW = 100_000_000_000
DAY = 24 * 3600 * 1000


def closed(*ages_days: float, size: int = 100) -> list[ClosedSegment]:
    """Segments of ten entries each, by the age of their newest record."""
    return [
        ClosedSegment(Index(10 * at), Index(10 * at + 9), size, 1 << 60, NOW - int(age * DAY))
        for at, age in enumerate(ages_days)
    ]


def keep(
    segments: list[ClosedSegment], limits: RetentionLimits, *, commit: int = 1000, active: int = 50
) -> int:
    return first_index_to_keep(
        segments, active, limits, now_ms=NOW, commit_index=Index(commit), first_index=Index(0)
    )


# requirement: RT1
def test_by_default_records_are_kept_for_two_weeks() -> None:
    assert RetentionLimits().retention_ms == 1_209_600_000
    assert keep(closed(20, 14.1, 13.9, 1), RetentionLimits()) == 20


# requirement: RT2
def test_a_segment_goes_only_when_its_newest_record_is_too_old() -> None:
    limits = RetentionLimits(retention_ms=DAY)
    assert keep(closed(3, 2, 1), limits) == 20
    assert keep(closed(0.5), limits) == 0
    assert keep([], limits) == 0


# requirement: RT2
def test_a_young_segment_keeps_the_old_ones_behind_it() -> None:
    assert keep(closed(3, 0.5, 3), RetentionLimits(retention_ms=DAY)) == 10


# requirement: RT3
def test_the_oldest_segments_go_until_the_log_fits() -> None:
    assert keep(closed(1, 1, 1, 1), RetentionLimits(retention_bytes=450)) == 0
    assert keep(closed(1, 1, 1, 1), RetentionLimits(retention_bytes=449)) == 10
    assert keep(closed(1, 1, 1, 1), RetentionLimits(retention_bytes=250)) == 20
    assert keep(closed(1, 1, 1, 1), RetentionLimits(retention_bytes=0)) == 40


# requirement: RT3
def test_entries_that_may_still_be_lost_take_no_room_from_committed_ones() -> None:
    limits = RetentionLimits(retention_bytes=250)
    assert keep(closed(1, 1, 1, 1), limits, commit=15) == 0  # 200 bytes count
    assert keep(closed(1, 1, 1, 1), limits, commit=20) == 10  # 300
    assert keep(closed(1, 1), limits, commit=19) == 0
    assert keep(closed(1, 1), limits, commit=20, active=51) == 10


# requirement: RT2, RT3
def test_no_limit_deletes_nothing() -> None:
    assert keep(closed(9999, 9999), RetentionLimits(retention_ms=-1)) == 0


# requirement: RT2
def test_what_is_not_committed_stays_and_so_does_the_newest_committed_entry() -> None:
    limits = RetentionLimits(retention_ms=DAY)
    assert keep(closed(5, 5, 5), limits, commit=19) == 10
    assert keep(closed(5, 5, 5), limits, commit=20) == 20
    assert keep(closed(5, 5, 5), limits, commit=-1) == 0


# requirement: RT2
def test_while_the_time_is_not_known_only_size_counts() -> None:
    limits = RetentionLimits(retention_ms=DAY, retention_bytes=300)
    segments = closed(20, 20, 20, 20)
    kept = first_index_to_keep(
        segments, 50, limits, now_ms=None, commit_index=Index(1000), first_index=Index(0)
    )
    assert kept == 20


def a_log(filesystem: FakeFilesystem) -> SegmentedLog:
    """Its vote stands in both slots."""
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(1), None))
    append(log, 1)
    make_durable(log)
    return log


def noted(filesystem: FakeFilesystem) -> int:
    slot = newest_slot(found_slots(filesystem, DIRECTORY))
    assert slot is not None
    return slot.state.durable_index


# requirement: M3
def test_the_first_sync_after_a_tick_notes_the_durable_end_and_so_does_one_that_is_owed() -> None:
    filesystem = FakeFilesystem()
    log = a_log(filesystem)
    for _ in range(2):
        append(log, 1)
        make_durable(log)
    assert (log.durable_index, noted(filesystem), log.owes_end) == (2, 0, True)
    assert log.take_sync() is None, "nothing has changed, and no tick has passed"
    log.tick()
    make_durable(log)
    assert (noted(filesystem), log.owes_end) == (2, False)
    log.tick()
    assert log.take_sync() is None
    append(log, 1)
    make_durable(log)
    assert (noted(filesystem), log.owes_end) == (3, False)


# requirement: M3
def test_a_vote_and_a_close_note_it_at_once(filesystem: FakeFilesystem) -> None:
    log = a_log(filesystem)
    append(log, 2)
    make_durable(log)
    assert noted(filesystem) == 0
    log.save_hard_state(HardState(Term(2), NodeId(1)))
    make_durable(log)
    assert noted(filesystem) == 2
    append(log, 1)
    make_durable(log)
    assert noted(filesystem) == 2, "one sync in two ticks"
    log.close()
    assert noted(filesystem) == 3
