"""Segments that are compacted or deleted, and when a sync notes how far the log is durable."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import pairwise

import pytest

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.hosting.opener import make_durable
from raftlog.records.batch import Batch, Codec, parse_header, stamp
from raftlog.records.builder import Record, build_batch
from raftlog.storage.compaction import is_due
from raftlog.storage.compactor import Compactor
from raftlog.storage.durable_state import found_slots, newest_slot
from raftlog.storage.log_storage import carry_out
from raftlog.storage.retention import ClosedSegment, RetentionLimits, first_index_to_keep
from raftlog.storage.segment_rewriter import RewrittenSegment, SegmentRewriter
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix, truncate_suffix
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.compacting import compact, compactor, records_in, stored
from tests.helpers.log_files import DIRECTORY, NOBODY, append, index_at_time, open_log, segment, sync
from tests.helpers.manual_wall_clock import ManualWallClock

SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=100)


def keyed_log(
    filesystem: FakeFilesystem, batches: int = 20, *, settings: LogSettings = SETTINGS
) -> SegmentedLog:
    """One record a batch, under two keys in turn; everything is committed."""
    clock = ManualWallClock()
    log = SegmentedLog.open(filesystem, DIRECTORY, settings, clock)
    log.save_hard_state(HardState(Term(1), NodeId(1)))
    for number in range(batches):
        clock.now_ms += 1
        records = [Record(b"value %d" % number, b"%d" % (number % 2), timestamp_ms=1000 + number)]
        data = build_batch(records, codec=Codec.NONE, timestamp_ms=0)
        base = int(log.last_index) + 1
        log.append([stamp(data, base_offset=base, leader_epoch=1, append_time_ms=None)])
    sync(log)
    log.note_commit_index(log.last_index)
    return log


def first_rewritten(work: Compactor) -> RewrittenSegment:
    while not isinstance(step := work.step(), RewrittenSegment):
        assert step is not None
    return step


def test_a_part_that_was_taken_before_finds_that_the_log_has_changed(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    part, removals = log.part(Index(1), 10_000), log.removals
    compact(filesystem, log)
    with pytest.raises(LogCorrupt):
        part.read(Index(1), Index(5), bytes_max=10_000)
    assert log.removals > removals


def test_an_index_that_a_reader_has_loaded_is_not_used_for_the_new_file(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    part = log.part(Index(1), 10_000)
    part.read(Index(1), Index(5), bytes_max=10_000)
    compact(filesystem, log)
    part.finished()
    assert records_in(stored(log))[-1].value == b"value 19"
    for first in range(20):
        found = log.read(Index(first), Index(first), bytes_max=1)
        assert found.first <= first <= found.last
        found.read()


def test_a_segment_that_retention_has_deleted_does_not_come_back(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    rewritten = first_rewritten(compactor(filesystem, log))
    state_at = log.closed_segments[1].base
    log.states.save(EntryId(Term(1), Index(state_at - 1)), b"state")
    assert truncate_prefix(log, state_at) == state_at
    carry_out(log.replace_change(rewritten))
    assert not filesystem.exists(segment(0))
    assert not filesystem.exists(rewritten.path)
    log.close()
    again = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    assert again.first_index == state_at


def test_what_is_not_committed_or_not_durable_is_not_compacted(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    closed = log.closed_segments
    assert log.compactable_segments == closed
    log.close()
    log = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    data = build_batch([Record(b"v" * 300, b"1")], codec=Codec.NONE, timestamp_ms=0)
    for _ in range(3):
        base = int(log.last_index) + 1
        log.append([stamp(data, base_offset=base, leader_epoch=1, append_time_ms=None)])
    log.note_commit_index(log.last_index)
    assert [each.base for each in log.compactable_segments] == [each.base for each in log.closed_segments][
        :-2
    ]
    sync(log)
    assert log.compactable_segments == log.closed_segments


def test_a_leader_epoch_that_was_flipped_is_damage_and_is_not_copied(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    filesystem.flip_bit(segment(0), 15, 1)  # the last byte of the first leader epoch
    assert parse_header(filesystem.read_file(segment(0))).leader_epoch == 3
    with pytest.raises(LogCorrupt, match="epoch 3 at offset 0"):
        compact(filesystem, log)
    assert not [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".compacted")]


@pytest.mark.parametrize("where", [70, 5, 30])
def test_damage_is_found_before_a_segment_is_replaced(filesystem: FakeFilesystem, where: int) -> None:
    log = keyed_log(filesystem)
    before = filesystem.read_file(segment(0))
    filesystem.flip_bit(segment(0), where)
    with pytest.raises(LogCorrupt):
        compact(filesystem, log)
    assert len(filesystem.read_file(segment(0))) == len(before)


def test_a_full_disk_leaves_the_old_segment(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem, settings=LogSettings(segment_bytes=700))
    before = records_in(stored(log))
    filesystem.capacity_bytes = filesystem.used_bytes + 10
    with pytest.raises(OSError, match="no room"):
        compact(filesystem, log)
    assert not [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".compacted")]
    assert records_in(stored(log)) == before


def test_a_round_without_memory_leaves_no_half_written_file(
    filesystem: FakeFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = keyed_log(filesystem, settings=LogSettings(segment_bytes=700))
    before = records_in(stored(log))
    add = SegmentRewriter.add

    def add_without_memory(rewriter: SegmentRewriter, batches: Sequence[Batch]) -> None:
        add(rewriter, batches)
        raise MemoryError

    monkeypatch.setattr(SegmentRewriter, "add", add_without_memory)
    with pytest.raises(MemoryError):
        compact(filesystem, log)
    assert not [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".compacted")]
    assert records_in(stored(log)) == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_batch_keeps_its_codec(filesystem: FakeFilesystem, codec: Codec) -> None:
    log = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    for _ in range(2):
        records = [Record(b"v" * 400, b"a", (("h", b"1"),)), Record(b"w" * 400, b"b"), Record(b"x", None)]
        data = build_batch(records, codec=codec, timestamp_ms=5)
        base = int(log.last_index) + 1
        log.append([stamp(data, base_offset=base, leader_epoch=1, append_time_ms=None)])
    log.roll_if_due()
    log._roll()
    sync(log)
    log.note_commit_index(log.last_index)
    compact(filesystem, log)
    first = stored(log)[0].header
    assert (first.codec, first.record_count, first.last_offset_delta) == (codec, 1, 2)
    assert [record.offset for record in records_in(stored(log))] == [2, 3, 4, 5]
    assert records_in(stored(log))[1].headers == (("h", b"1"),)


def test_the_time_at_which_a_segment_was_stored_stays(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    stored_ms = [each.stored_ms for each in log.closed_segments]
    work = compactor(filesystem, log)
    log.date(stored_ms[0] + 5)
    compact(filesystem, log, work)
    assert [each.stored_ms for each in log.closed_segments] == stored_ms
    log.close()
    log = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    assert log.recovery.rebuilt == []
    assert log.restored(NOBODY).last.index == 19


def closed(base: int, last: int, size: int) -> ClosedSegment:
    return ClosedSegment(Index(base), Index(last), size, 0, 0)


def test_a_round_is_due_once_enough_is_dirty() -> None:
    segments = [closed(0, 9, 600), closed(10, 19, 300), closed(20, 29, 100)]
    assert is_due(segments, 0, 1.0)
    assert is_due(segments, 10, 0.4)
    assert not is_due(segments, 10, 0.41)
    assert is_due(segments, 25, 0.0)
    assert not is_due(segments, 30, 0.0)
    assert not is_due([], 0, 0.0)


def log_of(filesystem: FakeFilesystem, batches: Sequence[tuple[int, bytes | None, int, int]]) -> SegmentedLog:
    """Batches of one record: term, key, producer (-1 for none) and time; the last one is not compacted."""
    log = SegmentedLog.open(filesystem, DIRECTORY, LogSettings(), ManualWallClock())
    log.save_hard_state(HardState(Term(9), None))
    for number, (term, key, producer, time_ms) in enumerate(batches):
        data = build_batch(
            [Record(b"%d" % number, key, timestamp_ms=time_ms)],
            codec=Codec.NONE,
            timestamp_ms=0,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=number if producer >= 0 else -1,
        )
        if number == len(batches) - 1:
            log._roll()
        log.append([stamp(data, base_offset=number, leader_epoch=term, append_time_ms=None)])
    sync(log)
    log.note_commit_index(log.last_index)
    return log


def test_a_gap_batch_covers_one_leader_epoch(filesystem: FakeFilesystem) -> None:
    terms = [1, 1, 2, 2, 5, 5, 6]
    log = log_of(filesystem, [(term, b"a", -1, 0) for term in terms])
    compact(filesystem, log)
    found = [(b.base_offset, b.last_offset, b.leader_epoch, b.header.is_gap) for b in stored(log)]
    assert found == [(0, 1, 1, True), (2, 3, 2, True), (4, 4, 5, True), (5, 5, 5, False), (6, 6, 6, False)]


def test_the_header_that_a_producer_needs_stays_until_it_needs_it_no_more(filesystem: FakeFilesystem) -> None:
    log = log_of(filesystem, [(1, b"a", 7, 0), (1, b"a", 7, 0), (1, b"a", 8, 0), (1, b"b", -1, 0)])
    compact(filesystem, log, compactor(filesystem, log, headers_kept={1}))
    headers = [batch.header for batch in stored(log)]
    assert [(header.base_offset, header.record_count) for header in headers] == [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    assert [header.is_gap for header in headers] == [True, False, False, False]
    assert (headers[1].producer_id, headers[1].base_sequence) == (7, 1)
    compact(filesystem, log, compactor(filesystem, log, headers_kept={2}))
    assert [batch.last_offset for batch in stored(log)] == [1, 2, 3]


def test_the_newest_time_of_a_batch_is_that_of_a_record_that_is_left(filesystem: FakeFilesystem) -> None:
    log = SegmentedLog.open(filesystem, DIRECTORY, LogSettings(), ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    records = [Record(b"1", b"a", timestamp_ms=900), Record(b"2", b"b", timestamp_ms=100)]
    for base, some in enumerate((records, [Record(b"3", b"a", timestamp_ms=200)])):
        data = build_batch(some, codec=Codec.NONE, timestamp_ms=0)
        log.append([stamp(data, base_offset=2 * base, leader_epoch=1, append_time_ms=None)])
    log._roll()
    sync(log)
    log.note_commit_index(log.last_index)
    assert index_at_time(log, 500) == (0, 900)
    compact(filesystem, log)
    assert index_at_time(log, 500) is None
    assert index_at_time(log, 150) == (2, 200)


def test_a_half_written_file_is_removed_when_the_log_is_opened(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem)
    rewritten = first_rewritten(compactor(filesystem, log))
    filesystem.restart()
    log = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    assert not filesystem.exists(rewritten.path)
    assert len(records_in(stored(log))) == 20


def test_a_round_that_was_forgotten_removes_no_file_of_the_next_one(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem, settings=LogSettings(segment_bytes=700))
    forgotten, work = compactor(filesystem, log), compactor(filesystem, log)
    path = f"{segment(0)}.compacted"
    while not filesystem.exists(path):
        forgotten.step()
    del forgotten
    gc.collect()
    assert filesystem.exists(path)
    compact(filesystem, log, work)
    assert len(records_in(stored(log))) < 20
    again = compactor(filesystem, keyed_log(filesystem))
    again.step()
    again.close()
    assert not [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".compacted")]


NOW = 100_000_000_000
DAY = 24 * 3600 * 1000


def closed_by_age(*ages_days: float, size: int = 100) -> list[ClosedSegment]:
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
    assert keep(closed_by_age(20, 14.1, 13.9, 1), RetentionLimits()) == 20


# requirement: RT2
def test_a_segment_goes_only_when_its_newest_record_is_too_old() -> None:
    limits = RetentionLimits(retention_ms=DAY)
    assert keep(closed_by_age(3, 2, 1), limits) == 20
    assert keep(closed_by_age(0.5), limits) == 0
    assert keep([], limits) == 0


# requirement: RT2
def test_a_young_segment_keeps_the_old_ones_behind_it() -> None:
    assert keep(closed_by_age(3, 0.5, 3), RetentionLimits(retention_ms=DAY)) == 10


# requirement: RT3
def test_the_oldest_segments_go_until_the_log_fits() -> None:
    assert keep(closed_by_age(1, 1, 1, 1), RetentionLimits(retention_bytes=450)) == 0
    assert keep(closed_by_age(1, 1, 1, 1), RetentionLimits(retention_bytes=449)) == 10
    assert keep(closed_by_age(1, 1, 1, 1), RetentionLimits(retention_bytes=250)) == 20
    assert keep(closed_by_age(1, 1, 1, 1), RetentionLimits(retention_bytes=0)) == 40


# requirement: RT3
def test_entries_that_may_still_be_lost_take_no_room_from_committed_ones() -> None:
    limits = RetentionLimits(retention_bytes=250)
    assert keep(closed_by_age(1, 1, 1, 1), limits, commit=15) == 0  # 200 bytes count
    assert keep(closed_by_age(1, 1, 1, 1), limits, commit=20) == 10  # 300
    assert keep(closed_by_age(1, 1), limits, commit=19) == 0
    assert keep(closed_by_age(1, 1), limits, commit=20, active=51) == 10


# requirement: RT2, RT3
def test_no_limit_deletes_nothing() -> None:
    assert keep(closed_by_age(9999, 9999), RetentionLimits(retention_ms=-1)) == 0


# requirement: RT2
def test_what_is_not_committed_stays_and_so_does_the_newest_committed_entry() -> None:
    limits = RetentionLimits(retention_ms=DAY)
    assert keep(closed_by_age(5, 5, 5), limits, commit=19) == 10
    assert keep(closed_by_age(5, 5, 5), limits, commit=20) == 20
    assert keep(closed_by_age(5, 5, 5), limits, commit=-1) == 0


# requirement: A11
def test_a_segment_goes_before_its_time_once_all_its_records_are_consumed() -> None:
    def kept(consumed: int, **more: Index) -> int:
        return keep(closed_by_age(1, 1, 1), RetentionLimits(consumed_up_to=Index(consumed), **more))

    assert [kept(offset) for offset in (0, 9, 10, 11, 29, 30, 99)] == [0, 0, 10, 10, 20, 30, 30]
    assert kept(30, kept_from=Index(15)) == 10
    assert kept(30, archived_up_to=Index(10)) == 10
    waiting = RetentionLimits(retention_ms=DAY, consumed_up_to=Index(0))
    assert keep(closed_by_age(20, 20, 1), waiting) == 20  # retention bounds how long records wait


# requirement: RT2
def test_while_the_time_is_not_known_only_size_counts() -> None:
    limits = RetentionLimits(retention_ms=DAY, retention_bytes=300)
    segments = closed_by_age(20, 20, 20, 20)
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


def joined(filesystem: FakeFilesystem, log: SegmentedLog, *, old_end: int = 0) -> list[tuple[int, int]]:
    """Where the closed segments begin and end after a round that joins."""
    compact(
        filesystem, log, compactor(filesystem, log, joined_bytes_max=SETTINGS.segment_bytes, old_end=old_end)
    )
    return [(int(each.base), int(each.last)) for each in log.closed_segments]


def test_neighbours_that_fit_into_one_segment_are_joined(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem, 60)
    before, last = log.closed_segments, log.closed_segments[-1].last
    for each in before[1:]:
        log.states.save(EntryId(Term(1), Index(each.base - 1)), b"state")
    kept = records_in(stored(log))[-20:]
    sizes = joined(filesystem, log)
    assert len(sizes) < len(before) / 6
    assert (sizes[0][0], sizes[-1][1]) == (0, last)
    assert [(end + 1, start) for (_, end), (start, _) in pairwise(sizes)] == [
        (start, start) for start, _ in sizes[1:]
    ]
    assert all(each.size_bytes <= SETTINGS.segment_bytes for each in log.closed_segments)
    assert log.closed_segments[-1].stored_ms == before[-1].stored_ms > before[0].stored_ms
    names = filesystem.list_directory(DIRECTORY)
    for ending, count in ((".log", len(sizes) + 1), (".index", len(sizes)), (".joining", 0)):
        assert len([name for name in names if name.endswith(ending)]) == count
    assert [*log.states.standing] == [start for start, _ in sizes[1:]], "a log begins where a segment does"
    for index in range(61 - 1):
        found = log.read(Index(index), Index(index), bytes_max=1)
        assert found.first <= index <= found.last
        found.read()
    log.close()
    again = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    assert again.recovery.torn_tail is None
    assert records_in(stored(again))[-len(kept) // 4 :] == kept[-len(kept) // 4 :]


def test_a_segment_with_young_tombstones_stays_alone(filesystem: FakeFilesystem) -> None:
    """A joined segment is as old as its newest batch, and tombstones go with the age of their segment."""
    log = keyed_log(filesystem, 12)
    data = build_batch([Record(None, b"gone")], codec=Codec.NONE, timestamp_ms=0)
    at = log.last_index + 1
    log.append([stamp(data, base_offset=at, leader_epoch=1, append_time_ms=None)])
    for number in range(13, 40):
        more = build_batch([Record(b"v", b"%d" % (number % 2))], codec=Codec.NONE, timestamp_ms=0)
        log.append([stamp(more, base_offset=number, leader_epoch=1, append_time_ms=None)])
    sync(log)
    log.note_commit_index(log.last_index)
    holder = next(each for each in log.closed_segments if each.base <= at <= each.last)
    sizes = joined(filesystem, log)
    assert (holder.base, holder.last) in sizes
    assert len(sizes) < 5
    assert len(joined(filesystem, log, old_end=int(log.last_index))) < len(sizes)


def test_readers_and_cuts_find_their_way_in_a_joined_log(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem, 40)
    part, removals = log.part(Index(5), 10_000), log.removals
    assert joined(filesystem, log) == [(0, 38)]
    with pytest.raises(LogCorrupt):
        part.read(Index(5), Index(30), bytes_max=10_000)
    assert log.removals > removals, "the reader looks again"
    cut = int(log.closed_segments[-1].last)
    last = stored(log)[-1]
    truncate_suffix(log, Index(last.base_offset))
    assert log.last_index == last.base_offset - 1 >= cut


def test_a_join_that_another_change_overtook_changes_nothing(filesystem: FakeFilesystem) -> None:
    log = keyed_log(filesystem, 40)
    work = compactor(filesystem, log, joined_bytes_max=SETTINGS.segment_bytes)
    while not (isinstance(step := work.step(), RewrittenSegment) and len(step.old) > 1):
        if isinstance(step, RewrittenSegment):
            carry_out(log.replace_change(step))
    second = step.old[1].base
    log.states.save(EntryId(Term(1), Index(second - 1)), b"state")
    assert truncate_prefix(log, second) == second
    carry_out(log.replace_change(step))
    assert log.first_index == second
    names = filesystem.list_directory(DIRECTORY)
    assert not [name for name in names if name.endswith((".compacted", ".joining"))]
    assert stored(log)[0].base_offset == second
