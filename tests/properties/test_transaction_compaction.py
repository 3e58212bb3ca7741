"""Compaction of logs with transactions against a plain dictionary of what is committed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.replica.positions import NO_ABORTED, ONE_BATCH, NewestRecords
from partitions.replica.transaction_table import TransactionTable
from raftlog.core.ready import HardState
from raftlog.records.batch import Batch, Codec, split_batches, stamp
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.control import Marker, marker_batch
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import Index, Term
from tests.helpers import compacting
from tests.helpers.compacting import compactor, records_in, stored
from tests.helpers.log_files import DIRECTORY, sync
from tests.helpers.manual_wall_clock import ManualWallClock

SETTINGS = LogSettings(segment_bytes=500, index_interval_bytes=100)
KEYS = (b"a", b"b", b"c")
Newest = dict[bytes | None, tuple[int, bytes | None]]


@dataclass
class Written:
    """A log, and which of its batches are of aborted or open transactions."""

    batches: list[Batch] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)  # base offsets
    table: TransactionTable = field(default_factory=TransactionTable)

    @property
    def end(self) -> int:
        """Of the log."""
        return self.batches[-1].last_offset + 1

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return self.table.last_stable_offset(self.end)

    def newest(self, end: int) -> Newest:
        """The newest committed record of each key below an offset: the slow twin."""
        return newest_in([batch for batch in self.batches if batch.base_offset not in self.hidden], 0, end)


def newest_in(batches: Sequence[Batch], start: int, end: int) -> Newest:
    found = records_in(batches)
    return {one.key: (one.offset, one.value) for one in found if start <= one.offset < end}


def written(rng: random.Random, count: int) -> Written:
    """Plain batches and four producers with transactions in any order; terms do not fall."""
    log, epochs, open_batches = Written(), dict.fromkeys(range(4), 0), dict[int, list[int]]()
    base, term = 0, 1
    for _ in range(count):
        term += rng.random() < 0.05
        producer = rng.randrange(4)
        if producer in open_batches and rng.random() < 0.4:
            is_commit = rng.random() < 0.5
            data: bytes | memoryview = marker_batch(
                Marker(producer, epochs[producer], is_commit, 1, 0), timestamp_ms=5
            ).data
            epochs[producer] += 1
            bases = open_batches.pop(producer)
            log.hidden.update(() if is_commit else bases)
        else:
            values = [rng.choice([None, b"1" * rng.randrange(40)]) for _ in range(rng.randrange(1, 4))]
            records = [Record(value, rng.choice(KEYS)) for value in values]
            data = build_batch(records, codec=rng.choice([*Codec]), timestamp_ms=100 + base)
            if rng.random() < 0.7:
                data = with_producer(data, producer, epochs[producer], -1, in_transaction=True)
                open_batches.setdefault(producer, []).append(base)
        batch = stamp(data, base_offset=base, leader_epoch=term, append_time_ms=1000 + base)
        log.batches.append(batch)
        log.table.apply(batch)
        base = batch.last_offset + 1
    log.hidden.update(base for bases in open_batches.values() for base in bases)
    return log


def filled(filesystem: FakeFilesystem, source: Written) -> SegmentedLog:
    log = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
    log.save_hard_state(HardState(Term(99), None))
    for batch in source.batches:
        log.append([batch])
    sync(log)
    log.note_commit_index(log.last_index)
    return log


def compact(
    filesystem: FakeFilesystem, log: SegmentedLog, source: Written, clean_end: int = 0, keys_max: int = 100
) -> int:
    """One round; where it has ended."""
    work = compactor(
        filesystem,
        log,
        clean_end,
        applied_index=source.stable_end - 1,
        keys_max=keys_max,
        tombstones_end=source.end,
        aborted=source.table.aborted(),
    )
    return int(compacting.compact(filesystem, log, work).clean_end)


def table_of(batches: Sequence[Batch]) -> TransactionTable:
    table = TransactionTable()
    for batch in batches:
        table.apply(batch)
    return table


def seen(batches: Sequence[Batch], start: int, end: int) -> Newest:
    """What a reader of committed records knows in the end, without deleted keys."""
    shown = table_of(batches).without_aborted(b"".join(batch.data for batch in batches))
    found = newest_in([batch for batch in split_batches(shown) if batch.base_offset < end], start, end)
    return {key: value for key, value in found.items() if value[1] is not None}


def check(source: Written, batches: Sequence[Batch], clean_end: int, starts: Sequence[int]) -> None:
    end = source.stable_end
    wanted = {key: value for key, value in source.newest(end).items() if value[1] is not None}
    for start in starts:
        assert seen(batches, start, end) == {k: v for k, v in wanted.items() if v[0] >= start}
    assert table_of(batches).snapshot() == source.table.snapshot()
    aborted = source.table.aborted()
    for batch in batches:
        if batch.last_offset < clean_end and aborted.of(batch.header) is not None:
            assert not batch.header.record_count


@settings(max_examples=24)
@given(seed=st.integers(0, 1 << 32), keys_max=st.integers(1, 4))
def test_readers_see_the_newest_committed_record_of_each_key(seed: int, keys_max: int) -> None:
    # requirement: D3
    rng = random.Random(seed)
    source, filesystem = written(rng, rng.randrange(2, 60)), FakeFilesystem()
    log, clean_end = filled(filesystem, source), 0
    starts = [0, *(rng.randrange(source.end) for _ in range(3))]
    for _ in range(100):
        before, clean_end = clean_end, compact(filesystem, log, source, clean_end, keys_max)
        check(source, stored(log), clean_end, starts)
        if clean_end == before:
            break
    assert clean_end == max(
        (segment.last + 1 for segment in log.closed_segments if segment.last < source.stable_end), default=0
    )
    once = [batch.data for batch in stored(log)]
    compact(filesystem, log, source)
    assert compact(filesystem, log, source) == clean_end
    check(source, stored(log), clean_end, starts)
    assert len(stored(log)) <= len(once)


@settings(max_examples=24)
@given(seed=st.integers(0, 1 << 32))
def test_a_log_with_parts_of_two_replicas_gives_the_same_ranges(seed: int) -> None:
    """After a repair, or a change of leaders, one replica has compacted and uncompacted parts."""
    # requirement: D3
    rng = random.Random(seed)
    source, filesystem = written(rng, rng.randrange(2, 60)), FakeFilesystem()
    log = filled(filesystem, source)
    compact(filesystem, log, source)
    compacted = stored(log)
    cuts = sorted({batch.base_offset for batch in compacted} & {each.base_offset for each in source.batches})
    chosen = {cut: rng.choice([source.batches, compacted]) for cut in [*cuts, source.end]}
    mixed: list[Batch] = []
    for first, end in zip(cuts, [*cuts[1:], source.end], strict=True):
        mixed += [batch for batch in chosen[first] if first <= batch.base_offset < end]
    assert table_of(mixed).snapshot() == source.table.snapshot()


@settings(max_examples=24)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 60), is_compacted=st.booleans())
def test_the_newest_records_are_those_that_a_reader_sees(seed: int, count: int, is_compacted: bool) -> None:
    """Markers, aborted and open transactions, gaps and emptied batches count as nothing."""
    # requirement: C2
    rng = random.Random(seed)
    source, filesystem = written(rng, rng.randrange(2, 60)), FakeFilesystem()
    log = filled(filesystem, source)
    if is_compacted:
        compact(filesystem, log, source)
    for end, aborted in ((source.stable_end, source.table.aborted()), (source.end, NO_ABORTED)):
        batches = [batch for batch in stored(log) if aborted.of(batch.header) is None]
        offsets = [record.offset for record in records_in(batches) if record.offset < end]
        search = NewestRecords(count, Index(end - 1), aborted)
        while not search.is_complete and search.last >= 0:
            search.look(log.part(search.last, ONE_BATCH))
        assert max(0, search.offset) == ([0] * count + offsets)[-count], (offsets, end)


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_at_any_change_shows_no_aborted_record(seed: int) -> None:
    # requirement: D3
    rng = random.Random(seed)
    source = written(rng, 40)
    crash_after, is_over = 0, False
    while not is_over:
        filesystem = FakeFilesystem()
        log = filled(filesystem, source)
        filesystem.crash_after_changes = crash_after
        try:
            compact(filesystem, log, source)
            is_over = True
        except PowerLost:
            pass
        filesystem.crash_after_changes = None
        if rng.random() < 0.7:
            filesystem.lose_power(rng)
        else:
            filesystem.restart()
        log = SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())
        check(source, stored(log), 0, [0])
        log.note_commit_index(log.last_index)
        clean_end = compact(filesystem, log, source)
        check(source, stored(log), clean_end, [0])
        crash_after += 1
