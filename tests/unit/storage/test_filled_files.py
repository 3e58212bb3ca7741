"""Files that are filled ahead with zeros: zeros count as nothing, wherever a file is read."""

from __future__ import annotations

import dataclasses
import random

import pytest

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.repair.verify import examine
from raftlog.storage.inspect import inspect_segment
from raftlog.storage.segment import FILL_BYTES_MAX, FILL_BYTES_MIN, FILL_FOR_BYTES_MAX
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_suffix
from raftlog.types import Index, NodeId, Term
from tests.helpers.log_files import DIRECTORY, SETTINGS, append, log_with, open_log, segment, sync
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

BATCH = len(storage_batch(0).data)
LARGE = dataclasses.replace(SETTINGS, segment_bytes=64 << 20)


def opened(filesystem: FakeFilesystem, settings: LogSettings = LARGE) -> SegmentedLog:
    log = SegmentedLog.open(filesystem, DIRECTORY, settings, ManualWallClock())
    log.save_hard_state(HardState(Term(1), NodeId(1)))
    return log


def size_of(filesystem: FakeFilesystem, base: int = 0) -> int:
    return len(filesystem.read_file(segment(base)))


def test_a_file_is_filled_from_the_fifth_small_append_on(filesystem: FakeFilesystem) -> None:
    log = opened(filesystem)
    sizes = []
    for _ in range(6):
        append(log, 1)
        sizes.append(size_of(filesystem))
    assert sizes == [*range(BATCH, 5 * BATCH, BATCH), *[5 * BATCH + FILL_BYTES_MIN] * 2]
    assert filesystem.read_file(segment(0))[6 * BATCH :] == bytes(FILL_BYTES_MIN - BATCH)
    assert log.size_bytes == 6 * BATCH
    assert log.read(Index(4), Index(5), bytes_max=1 << 20).read() == (
        bytes(storage_batch(4).data) + bytes(storage_batch(5).data)
    )


def test_a_file_is_filled_by_as_much_as_it_has_up_to_a_bound(filesystem: FakeFilesystem) -> None:
    log = opened(filesystem)
    most, sizes = 0, set()
    while log.size_bytes < 3 * FILL_BYTES_MAX:
        append(log, 20)
        ahead = size_of(filesystem) - log.size_bytes
        most, _ = max(most, ahead), sizes.add(size_of(filesystem))
        assert ahead <= max(FILL_BYTES_MIN, min(log.size_bytes, FILL_BYTES_MAX))
    assert most > FILL_BYTES_MAX - 100 * BATCH
    assert len(sizes) < 10


def test_large_appends_fill_nothing(filesystem: FakeFilesystem) -> None:
    log = opened(filesystem)
    count = FILL_FOR_BYTES_MAX // BATCH + 1
    for _ in range(8):
        log.append([storage_batch(log.last_index + 1 + number) for number in range(count)])
        assert size_of(filesystem) == log.size_bytes


def test_no_file_is_filled_beyond_the_size_of_a_segment(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 8)
    assert not log.closed_segments
    assert size_of(filesystem) == SETTINGS.segment_bytes
    append(log, 1)
    assert log.closed_segments
    assert size_of(filesystem) == SETTINGS.segment_bytes


# requirement: L9
@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_is_there_after_a_power_loss_and_zeros_are_no_torn_tail(seed: int) -> None:
    rng, filesystem, whole = random.Random(seed), FakeFilesystem(), True
    for _ in range(4):
        log = opened(filesystem)
        assert whole is False or log.recovery.torn_tail is None
        append(log, rng.randrange(1, 30))
        sync(log)
        synced = log.last_index
        append(log, unsynced := rng.choice((0, 0, 3)))
        whole = not unsynced
        filesystem.lose_power(rng)
        again = opened(filesystem)
        assert again.last_index >= synced
        assert size_of(filesystem) == again.size_bytes
        again.close()


def test_a_killed_process_leaves_zeros_and_the_next_one_cuts_them_off(filesystem: FakeFilesystem) -> None:
    log_with(filesystem, 6)
    filesystem.restart()
    assert size_of(filesystem) > 6 * BATCH
    assert len(list(inspect_segment(filesystem, segment(0)))) == 6
    assert examine(filesystem, DIRECTORY).is_clean
    log = open_log(filesystem)
    assert (log.last_index, log.recovery.torn_tail) == (5, None)
    assert size_of(filesystem) == 6 * BATCH


def test_an_orderly_end_cuts_the_zeros_off(filesystem: FakeFilesystem) -> None:
    log_with(filesystem, 6).close()
    assert size_of(filesystem) == 6 * BATCH


# requirement: L9
def test_zeros_in_closed_segments_cost_nothing_that_follows(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 7)
    assert log.roll_up_to(Index(6))
    append(log, 9)
    sync(log)
    assert size_of(filesystem) > 7 * BATCH
    filesystem.restart()
    assert examine(filesystem, DIRECTORY).is_clean
    log = open_log(filesystem)
    assert (log.last_index, log.recovery.torn_tail, log.recovery.rebuilt) == (15, None, [])
    filesystem.lose_power(random.Random(1))  # and with it the index
    log = open_log(filesystem)
    assert (log.last_index, log.recovery.torn_tail) == (15, None)
    assert log.read(Index(6), Index(7), bytes_max=1 << 20).last == 7


# requirement: L9
@pytest.mark.parametrize("is_covered", [False, True])
def test_garbage_in_the_zeros_of_a_closed_segment_costs_nothing(is_covered: bool) -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 7)
    assert log.roll_up_to(Index(6))
    append(log, 4)
    sync(log)
    log.close()
    if not is_covered:
        filesystem.remove(f"{DIRECTORY}/epochs")
    filesystem.flip_bit(segment(0), 7 * BATCH + 20)
    assert examine(filesystem, DIRECTORY).is_clean
    for _ in range(2):
        log = open_log(filesystem)
        assert (log.last_index, log.recovery.torn_tail) == (10, None)
        log.close()


# requirement: M3
@pytest.mark.parametrize("base", [0, 7])
def test_zeros_in_place_of_what_was_durable_are_damage(filesystem: FakeFilesystem, base: int) -> None:
    log = log_with(filesystem, 7)
    assert log.roll_up_to(Index(6))
    append(log, 4)
    sync(log)
    log.close()
    whole = filesystem.read_file(segment(base))
    at = (3 if base else 6) * BATCH
    filesystem.overwrite(segment(base), whole[:at] + bytes(len(whole) - at))
    assert not examine(filesystem, DIRECTORY).is_clean
    if base:
        with pytest.raises(LogCorrupt):
            open_log(filesystem)


# requirement: M3
@pytest.mark.parametrize("slots", ["a", "ab"])
def test_zeros_are_what_may_be_lost_where_the_durable_end_is_unknown(slots: str) -> None:
    filesystem = FakeFilesystem()
    log_with(filesystem, 6).close()
    filesystem.overwrite(segment(0), filesystem.read_file(segment(0))[: 4 * BATCH] + bytes(2 * BATCH))
    for slot in slots:
        filesystem.overwrite(f"{DIRECTORY}/hard_state.{slot}", bytes(89))
    assert [(hole.first, hole.last) for hole in examine(filesystem, DIRECTORY).holes] == [(4, None)]


def test_a_disk_without_room_for_zeros_takes_appends(filesystem: FakeFilesystem) -> None:
    log = opened(filesystem)
    append(log, 3)
    filesystem.capacity_bytes = filesystem.used_bytes + 20 * BATCH
    append(log, 20)
    assert (log.last_index, size_of(filesystem)) == (22, 23 * BATCH)
    with pytest.raises(OSError, match="no room"):
        append(log, 1)
    filesystem.capacity_bytes = None
    append(log, 10)
    assert size_of(filesystem) > log.size_bytes, "it is filled when there is room again"
    sync(log)
    filesystem.restart()
    assert opened(filesystem).last_index == 32


def test_a_file_that_was_closed_between_its_uses_goes_on_before_its_zeros(filesystem: FakeFilesystem) -> None:
    log = opened(filesystem)
    append(log, 6)
    sync(log)
    before = size_of(filesystem)
    waits: list[str] = []
    filesystem.on_wait = lambda operation, path: waits.append(operation)
    filesystem.held.make_room()
    append(log, 3)
    assert (size_of(filesystem), waits) == (before, [])
    filesystem.restart()
    assert opened(filesystem).last_index == 8


def test_the_file_is_filled_again_behind_a_cut(filesystem: FakeFilesystem) -> None:
    log = opened(filesystem)
    append(log, 10)
    sync(log)
    truncate_suffix(log, Index(2))
    assert size_of(filesystem) == 2 * BATCH
    append(log, 10, epoch=1)
    assert size_of(filesystem) > 12 * BATCH
    filesystem.restart()
    assert opened(filesystem).last_index == 11
