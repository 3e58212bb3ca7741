"""Compaction of a log against a plain dictionary, with crashes at every change of the disk."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.core.ready import HardState
from raftlog.records.batch import Batch, Codec, check_batch, split_batches, stamp
from raftlog.records.builder import Record, build_batch
from raftlog.records.compaction import cut_gap, gap_batch, starting_at
from raftlog.repair.verify import examine
from raftlog.storage.compactor import Compactor
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import Index, Term
from tests.helpers import compacting
from tests.helpers.compacting import compactor, records_in, stored, survivors
from tests.helpers.log_files import DIRECTORY, index_at_time, sync
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import leader_change

SETTINGS = LogSettings(segment_bytes=500, index_interval_bytes=100)
TERM = Term(3)

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
RECORDS = st.lists(st.tuples(KEYS, st.sampled_from([None, b"1", b"value" * 9])), min_size=1, max_size=5)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(list(Codec)), st.integers(1, 3), st.integers(-1, 2), st.booleans()),
    min_size=1,
    max_size=25,
)
OLD = 1 << 62  # every tombstone has stayed for long enough
Shapes = list[tuple[list[tuple[bytes | None, bytes | None]], Codec, int, int, bool]]


def open_log(filesystem: FakeFilesystem) -> SegmentedLog:
    return SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())


def batches_of(shapes: Shapes) -> list[Batch]:
    """Stamped batches in log order; terms do not fall."""
    found: list[Batch] = []
    base, term = 0, 1
    for records, codec, epoch, producer, is_control in shapes:
        term = max(term, epoch)
        if is_control:
            batch = leader_change(base, 5 + base)
            batch = stamp(batch.data, base_offset=base, leader_epoch=term, append_time_ms=None)
        else:
            data = build_batch(
                [Record(value, key, timestamp_ms=100 + base) for key, value in records],
                codec=codec,
                timestamp_ms=0,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=base if producer >= 0 else -1,
            )
            append_time_ms = 1000 + base if producer % 2 else None
            batch = stamp(data, base_offset=base, leader_epoch=term, append_time_ms=append_time_ms)
        found.append(batch)
        base = batch.last_offset + 1
    return found


def filled(filesystem: FakeFilesystem, batches: Sequence[Batch]) -> SegmentedLog:
    log = open_log(filesystem)
    log.save_hard_state(HardState(TERM, None))
    for batch in batches:
        log.append([batch])
    sync(log)
    log.note_commit_index(log.last_index)
    return log


def compact(
    filesystem: FakeFilesystem,
    log: SegmentedLog,
    clean_end: int = 0,
    *,
    keys_max: int = 1000,
    headers_kept: frozenset[int] = frozenset(),
    tombstones_end: int = 0,
    joined_bytes_max: int = 0,
) -> Compactor:
    """One whole round."""
    work = compactor(
        filesystem,
        log,
        clean_end,
        keys_max=keys_max,
        headers_kept=headers_kept,
        tombstones_end=tombstones_end,
        joined_bytes_max=joined_bytes_max,
        old_end=OLD,
    )
    return compacting.compact(filesystem, log, work)


@settings(max_examples=24)
@given(
    shapes=BATCHES,
    keys_max=st.integers(1, 6),
    tombstones=st.integers(0, 60),
    reopen=st.booleans(),
    joined=st.sampled_from([0, 300, 4_000]),
)
def test_the_newest_record_of_each_key_stays(
    shapes: Shapes, keys_max: int, tombstones: int, reopen: bool, joined: int
) -> None:
    filesystem = FakeFilesystem()
    batches = batches_of(shapes)
    log = filled(filesystem, batches)
    clean_end = 0
    for _ in range(100):
        work = compact(
            filesystem,
            log,
            clean_end,
            keys_max=keys_max,
            tombstones_end=tombstones,
            joined_bytes_max=joined,
        )
        if work.clean_end == clean_end:
            break
        clean_end = int(work.clean_end)
        if reopen:
            log.close()
            log = open_log(filesystem)
    closed_end = log.closed_segments[-1].last + 1 if log.closed_segments else 0
    assert clean_end == closed_end
    compact(filesystem, log, 0, tombstones_end=tombstones)  # what was removed as a tombstone stays removed
    assert records_in(stored(log)) == survivors(batches, closed_end, min(tombstones, closed_end))
    check_same_log(log, batches)


def check_same_log(log: SegmentedLog, batches: Sequence[Batch]) -> None:
    """Ends, terms, control batches and the boundaries of batches are those of the log before."""
    found = stored(log)
    assert (log.first_index, log.last_index) == (0, batches[-1].last_offset)
    ends = {batch.last_offset: batch for batch in batches}
    expected = 0
    for batch in found:
        assert batch.base_offset == expected
        assert batch.last_offset in ends
        expected = batch.last_offset + 1
    assert [b.data for b in found if b.header.is_control] == [b.data for b in batches if b.header.is_control]
    for batch in batches:
        assert log.term_at(Index(batch.base_offset)) == batch.leader_epoch
        assert log.term_at(Index(batch.last_offset)) == batch.leader_epoch
    live = {record.offset for record in records_in(found)}
    for batch in batches:
        if live.issuperset(range(batch.base_offset, batch.last_offset + 1)):
            assert batch.data in [each.data for each in found]


@settings(max_examples=20)
@given(shapes=BATCHES, kept=st.sets(st.integers(0, 60)))
def test_needed_headers_stay_and_no_others(shapes: Shapes, kept: set[int]) -> None:
    filesystem = FakeFilesystem()
    batches = batches_of(shapes)
    log = filled(filesystem, batches)
    compact(filesystem, log, headers_kept=frozenset(kept))
    found = {batch.base_offset: batch.header for batch in stored(log)}
    closed_end = log.closed_segments[-1].last + 1 if log.closed_segments else 0
    for batch in batches:
        header = batch.header
        if header.has_producer and (batch.base_offset in kept or batch.base_offset >= closed_end):
            left = found[batch.base_offset]
            assert left[6] == header.last_offset_delta
            assert left[9:12] == header[9:12]
            assert left.max_timestamp == header.max_timestamp
    empty = [header for header in found.values() if not header.record_count]
    assert all(header.is_gap or header.base_offset in kept for header in empty)


@settings(max_examples=20)
@given(shapes=BATCHES, first=st.integers(0, 60), time=st.integers(0, 1100))
def test_reads_and_times_step_over_gaps(shapes: Shapes, first: int, time: int) -> None:
    filesystem = FakeFilesystem()
    log = filled(filesystem, batches_of(shapes))
    compact(filesystem, log)
    whole = stored(log)
    first = min(first, int(log.last_index))
    for bytes_max in (1, 200, 10_000):
        found = log.read(Index(first), log.last_index, bytes_max=bytes_max)
        data = starting_at(found.read(), first)
        batches = split_batches(data)
        assert batches[0].base_offset <= first <= batches[0].last_offset
        assert not batches[0].header.is_gap or batches[0].base_offset == first
        for batch in batches[1:]:
            assert batch in whole
    reached = [b for b in whole if b.header.newest_ms >= time]
    wanted = (reached[0].base_offset, reached[0].header.max_timestamp) if reached else None
    assert index_at_time(log, time) == wanted


@pytest.mark.parametrize("joined_bytes_max", [0, 4_000])
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_change_loses_nothing(seed: int, joined_bytes_max: int) -> None:
    rng = random.Random(seed)
    shapes: Shapes = [
        ([(rng.choice([b"a", b"b", None]), rng.choice([b"v" * 20, None]))] * 3, Codec.NONE, 1, -1, False)
        for _ in range(14)
    ]
    batches = batches_of(shapes)
    crash_after, is_over = 0, False
    while not is_over:
        filesystem = FakeFilesystem()
        log = filled(filesystem, batches)
        sync_names(log)
        closed_end = log.closed_segments[-1].last + 1
        files = len(log.closed_segments)
        work = compactor(filesystem, log, joined_bytes_max=joined_bytes_max, old_end=OLD)
        filesystem.crash_after_changes = crash_after
        try:
            compacting.compact(filesystem, log, work)
            is_over = True
            assert (len(log.closed_segments) < files / 2) is (joined_bytes_max > 0)
        except PowerLost:
            pass
        filesystem.crash_after_changes = None
        if rng.random() < 0.7:
            filesystem.lose_power(rng)
        else:
            filesystem.restart()
        assert examine(filesystem, DIRECTORY).is_clean, "also before an opening finishes a join"
        log = open_log(filesystem)
        assert log.recovery.torn_tail is None
        found = records_in(stored(log))
        assert [record for record in survivors(batches, closed_end) if record not in found] == []
        assert [record for record in found if record not in records_in(batches)] == []
        check_same_log(log, batches)
        log.note_commit_index(log.last_index)
        compact(filesystem, log)
        assert records_in(stored(log)) == survivors(batches, closed_end)
        names = filesystem.list_directory(DIRECTORY)
        assert not [name for name in names if name.endswith((".compacted", ".joining"))]
        crash_after += 1


def sync_names(log: SegmentedLog) -> None:
    """The epochs file, too, so that closed segments are opened by their ends."""
    log.save_hard_state(HardState(TERM, None))
    flush = log.take_sync()
    if flush is not None:
        flush.run()
        log.sync_finished(flush)


def test_gaps_are_cut_anywhere_and_merged_within_a_term() -> None:
    gap = gap_batch(10, 99, 2, 50)
    check_batch(gap)
    part = cut_gap(gap, 20, 1000)
    assert (part.base_offset, part.last_offset, part.leader_epoch) == (20, 99, 2)
    assert part.header.stamped_ms == 50
    assert cut_gap(gap, 0, 1000) is gap
    assert cut_gap(gap, 15, 20).last_offset == 20
    other = leader_change(10, 5)
    assert cut_gap(other, 11, 12) is other
    data = bytes(gap.data) + bytes(other.data)
    assert split_batches(starting_at(data, 30))[0].base_offset == 30
    assert starting_at(data, 10) == data
