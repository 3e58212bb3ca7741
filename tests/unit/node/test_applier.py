"""Applying the entries of a group: in slices and turns, with states where segments begin, and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from raftlog.core.entries import EntrySpan
from raftlog.core.ready import HardState
from raftlog.node.backlogs import Backlogs
from raftlog.node.group.applier import (
    BATCH_BYTES,
    CHECKPOINT_BATCHES,
    READ_BYTES,
    SLICE_BYTES,
    STATE_BYTES_PER_BATCH,
    Applier,
)
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.node.reading import read_batches
from raftlog.records.batch import Batch, parse_header
from raftlog.records.compaction import gap_batch
from raftlog.storage.log_storage import LogStorage, carry_out
from raftlog.storage.segment import segment_path
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.state_files import STATE_SUFFIX
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import GroupId, Index, Term
from tests.helpers.log_files import append, log_with, sync
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch
from tests.helpers.virtual_time import VirtualLoop


class Count:
    """A machine that counts."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entry: Batch) -> None:
        """One more."""
        self.count += 1

    def snapshot(self) -> bytes:
        """How many."""
        return b"%d" % self.count

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """As many."""
        return lambda: setattr(self, "count", int(snapshot or b"0"))


class Padded(Count):
    """One whose state is as large as it is told."""

    def __init__(self, state_bytes: int) -> None:
        super().__init__()
        self._state_bytes = state_bytes

    def snapshot(self) -> bytes:
        """How many, with zeros before it."""
        return b"%0*d" % (self._state_bytes, self.count)


def applier_of(log: LogStorage, machine: Count) -> Applier[None]:
    """The way from a log into a machine."""
    return Applier(log, machine, RecentEntries(log))


def applied(batches: int) -> tuple[MemoryLog, Applier[None], Count]:
    """So many batches of two entries in segments of two batches, applied one by one."""
    log, machine = MemoryLog(segment_batches=2), Count()
    log.save_hard_state(HardState(Term(1), None))
    applier = applier_of(log, machine)
    for base in range(0, 2 * batches, 2):
        batch = storage_batch(base, 2)
        applier._recent.stage([batch])
        applier._recent.name(EntrySpan(Term(1), Index(base), Index(base + 1)))
        log.append([batch])
        flush = log.take_sync()
        assert flush is not None
        log.sync_finished(flush)
        applier.apply_up_to(Index(base + 1))
    return log, applier, machine


def test_a_state_is_kept_at_each_segment_whatever_is_applied_at_once() -> None:
    log, _, _ = applied(7)
    assert log.states.standing == (4, 8, 12)
    assert [log.states.load(base) for base in log.states.standing] == [b"2", b"4", b"6"]
    whole, machine = MemoryLog(segment_batches=2), Count()
    whole.save_hard_state(HardState(Term(1), None))
    whole.append([storage_batch(base, 2) for base in range(0, 14, 2)])
    applier_of(whole, machine).apply_up_to(Index(13))
    assert whole.states.standing == (4, 8, 12)


def test_a_log_begins_no_later_than_the_newest_state() -> None:
    log, applier, _ = applied(8)
    del log.states._kept[Index(12)]
    carry_out(applier.prefix_change(Index(13), log.durable_index))
    assert log.first_index == 8
    machine = Count()
    again = applier_of(log, machine)
    assert (again.applied_index, machine.count) == (7, 4)


# requirement: ST4
@pytest.mark.parametrize(
    ("value_bytes", "in_a_slice"),
    [(1, SLICE_BYTES // BATCH_BYTES), (SLICE_BYTES // 3, 3)],
)
def test_much_is_applied_in_slices(value_bytes: int, in_a_slice: int) -> None:
    log, machine = MemoryLog(segment_batches=1 << 20), Count()
    log.save_hard_state(HardState(Term(1), None))
    batches = [storage_batch(base, body=bytes(value_bytes)) for base in range(5 * in_a_slice)]
    log.append(batches)
    applier = applier_of(log, machine)
    most = in_a_slice + READ_BYTES // len(batches[0].data)
    slices = [0]
    while not applier.apply_up_to(log.last_index):
        slices.append(machine.count)
    assert len(slices) > 2
    assert all(in_a_slice <= after - before <= most for before, after in pairwise(slices))
    assert machine.count == len(batches)
    assert applier.apply_up_to(log.last_index)


# requirement: ST4
@pytest.mark.parametrize(
    ("state_bytes", "batches"),
    [(10, CHECKPOINT_BATCHES), (2 * STATE_BYTES_PER_BATCH * CHECKPOINT_BATCHES, 2 * CHECKPOINT_BATCHES)],
)
def test_a_checkpoint_is_due_after_a_number_of_batches(state_bytes: int, batches: int) -> None:
    log, machine = MemoryLog(segment_batches=1 << 20), Padded(state_bytes)
    log.save_hard_state(HardState(Term(1), None))
    log.append([storage_batch(base, 1) for base in range(batches + 2)])
    applier = applier_of(log, machine)
    assert applier.apply_up_to(Index(0))
    assert applier.checkpoint(log.last_index) is not None
    while not applier.apply_up_to(Index(batches)):
        pass
    assert not applier.is_checkpoint_due
    applier.apply_up_to(Index(batches + 1))
    assert applier.is_checkpoint_due
    carry_out(applier.checkpoint_change(log.last_index))
    assert log.load_checkpoint() == (batches + 1, machine.snapshot())
    log.append([storage_batch(batches + 2, 1)])
    applier.apply_up_to(log.last_index)
    carry_out(applier.checkpoint_change(log.last_index))
    assert log.load_checkpoint() == (batches + 1, b"%0*d" % (state_bytes, batches + 2)), (
        "it was not due again"
    )


def test_a_snapshot_replaces_what_the_machine_was() -> None:
    log, applier, machine = applied(3)
    become = applier.restoring(b"50")
    assert machine.count == 3, "until it is installed"
    applier.installed(Index(99), b"50", become)
    assert (applier.applied_index, machine.count) == (99, 50)
    assert log.first_index == 0


def applied_and_synced(
    filesystem: FakeFilesystem, last: int, clock: ManualWallClock | None = None
) -> tuple[SegmentedLog, Applier[None]]:
    """A log of small segments, durable and applied up to ``last``."""
    settings = LogSettings(segment_bytes=200, segment_ms=1000)
    log = SegmentedLog.open(filesystem, "/log", settings, clock or ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    applier = applier_of(log, Count())
    for base in range(0, last, 2):
        batch = storage_batch(base, 2)
        applier._recent.stage([batch])
        applier._recent.name(EntrySpan(Term(1), Index(base), Index(base + 1)))
        log.append([batch])
        flush = log.take_sync()
        assert flush is not None
        flush.run()
        log.sync_finished(flush)
        applier.apply_up_to(Index(base + 1))
    return log, applier


def test_no_log_begins_where_the_state_has_rotted() -> None:
    filesystem = FakeFilesystem()
    log, applier = applied_and_synced(filesystem, 40)
    bases = log.states.standing
    assert len(bases) > 3
    filesystem.flip_bit(segment_path("/log", bases[-2]) + STATE_SUFFIX, 9)
    carry_out(applier.prefix_change(Index(bases[-2]), log.durable_index))
    assert log.first_index == bases[-3]


def test_no_log_begins_before_the_segment_whose_state_has_rotted_either() -> None:
    """The newest durable segment stays, whatever is asked for: its state must stand."""
    filesystem, clock = FakeFilesystem(), ManualWallClock()
    log, applier = applied_and_synced(filesystem, 40, clock)
    bases = log.states.standing
    new_segment = Index(log.last_index + 1)
    clock.now_ms += 2000
    assert log.roll_if_due()
    filesystem.flip_bit(segment_path("/log", bases[-1]) + STATE_SUFFIX, 9)
    carry_out(applier.prefix_change(new_segment, log.durable_index))
    assert new_segment in log.states.standing
    assert log.first_index == bases[-2]


def test_a_gap_batch_is_applied_as_far_as_it_is_committed() -> None:
    log, applier, _ = applied(2)
    applier._recent.stage([gap_batch(4, 20, 1, None)])
    applier._recent.name(EntrySpan(Term(1), Index(4), Index(20)))
    log.append([gap_batch(4, 20, 1, None)])
    applier.apply_up_to(Index(7))
    assert applier.applied_index == 7
    again = applier_of(log, Count())
    again.apply_up_to(Index(9))  # from the log, within the batch
    assert again.applied_index == 9
    again.apply_up_to(Index(11))
    applier.apply_up_to(Index(20))
    assert (again.applied_index, applier.applied_index) == (11, 20)


# requirement: ST4
async def test_groups_take_turns_one_in_each_turn_of_the_loop() -> None:
    left = {GroupId(1): 3, GroupId(2): 1, GroupId(3): 2}
    applied: list[tuple[int, GroupId]] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    def apply_more(group: GroupId) -> None:
        applied.append((loop.turns, group))
        left[group] -= 1
        if left[group]:
            backlogs.add(group)

    backlogs = Backlogs(apply_more)
    for group in left:
        backlogs.add(group)
        backlogs.add(group)  # it has its turn once all the same
    await asyncio.sleep(1)
    assert [group for _, group in applied] == [1, 2, 3, 1, 3, 1]
    assert len({turn for turn, _ in applied}) == len(applied)
    backlogs.add(GroupId(2))
    left[GroupId(2)] = 1
    await asyncio.sleep(1)
    assert applied[-1][1] == 2


@pytest.mark.parametrize("first", range(12))
def test_a_read_that_begins_inside_a_gap_batch_has_nothing_below(first: int) -> None:
    log = log_with(FakeFilesystem(), 2)
    log.append([gap_batch(2, 9, 1, None)])
    append(log, 2)
    sync(log)
    found = asyncio.run(read_batches(log, Index(first), log.last_index, bytes_max=10_000))
    assert parse_header(found.data).base_offset == first
    assert found.last == log.last_index
