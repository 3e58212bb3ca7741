"""Opening after a stop: torn tails are cut, damage below the promise is refused."""

from __future__ import annotations

import contextlib
import random
import re

import pytest

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage.durable_state import SlotsInDoubt
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.slots import SLOT_BYTES
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import save_checkpoint, truncate_prefix, truncate_suffix
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import (
    BATCH,
    DIRECTORY,
    NOBODY,
    append,
    index_at_time,
    log_with,
    open_log,
    segment,
    sync,
    write_raw,
)
from tests.helpers.storage_batches import storage_batch


# requirement: L9
def test_a_batch_cut_short_at_any_byte_is_a_torn_tail() -> None:
    for kept in range(1, BATCH):
        filesystem = FakeFilesystem()
        log_with(filesystem, 3)
        write_raw(filesystem, segment(0), 3 * BATCH, bytes(storage_batch(3).data)[:kept])
        filesystem.restart()
        log = open_log(filesystem)
        torn = log.recovery.torn_tail
        if any(bytes(storage_batch(3).data)[:kept]):
            assert torn is not None, kept
            assert (torn.path, torn.position, torn.bytes_removed) == (segment(0), 3 * BATCH, kept)
        else:
            assert torn is None, kept
        assert log.last_index == 2, kept
        append(log, 1)
        assert log.read(Index(3), Index(3), bytes_max=1).read() == storage_batch(3).data, kept


# requirement: L9
@pytest.mark.parametrize("garbage", [bytes(200) + b"x", b"\xff" * 200, b"x" * 7])
def test_garbage_behind_the_log_is_a_torn_tail(filesystem: FakeFilesystem, garbage: bytes) -> None:
    log_with(filesystem, 3)
    write_raw(filesystem, segment(0), 3 * BATCH, garbage)
    filesystem.restart()
    log = open_log(filesystem)
    assert log.recovery.torn_tail is not None
    assert log.last_index == 2


# requirement: L9
def test_a_hole_in_what_was_never_synced_is_cut_with_all_that_follows(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 2)
    append(log, 4)
    filesystem.open(segment(0)).sync()  # the disk took it all of its own accord, and then lost a page
    write_raw(filesystem, segment(0), 3 * BATCH, bytes(BATCH))
    filesystem.restart()
    log = open_log(filesystem)
    assert log.last_index == 2
    assert log.recovery.torn_tail is not None


# requirement: M3
def test_a_flipped_bit_anywhere_in_what_was_promised_is_corruption() -> None:
    """The four bytes of the leader epoch are outside the checksum: a rise within the term may pass."""

    def refusal(position: int) -> str:
        filesystem = FakeFilesystem()
        log_with(filesystem, 6, epoch=1)
        filesystem.restart()
        filesystem.flip_bit(segment(0), position, bit=6)
        try:
            open_log(filesystem)
        except LogCorrupt as error:
            return str(error)
        return "opened"

    expected = re.compile(r"Partition-0/0+\.log at position \d+.*the other replicas", re.DOTALL)
    refusals = {position: refusal(position) for position in range(6 * BATCH)}
    assert {position: told for position, told in refusals.items() if not expected.search(told)} == {}


def test_corruption_is_refused_every_time_and_nothing_is_changed(filesystem: FakeFilesystem) -> None:
    log_with(filesystem, 6)
    filesystem.restart()
    filesystem.flip_bit(segment(0), 100)
    before = {
        name: filesystem.read_file(f"{DIRECTORY}/{name}") for name in filesystem.list_directory(DIRECTORY)
    }
    for _ in range(3):
        with pytest.raises(LogCorrupt):
            open_log(filesystem)
    assert before == {
        name: filesystem.read_file(f"{DIRECTORY}/{name}") for name in filesystem.list_directory(DIRECTORY)
    }


@pytest.mark.parametrize("cut_at", [0, 1, BATCH, 5 * BATCH - 1])
def test_a_file_that_lost_promised_bytes_is_corruption(filesystem: FakeFilesystem, cut_at: int) -> None:
    log_with(filesystem, 5)
    filesystem.restart()
    file = filesystem.open(segment(0))
    file.truncate(cut_at)
    with pytest.raises(LogCorrupt):
        open_log(filesystem)


@pytest.mark.parametrize("bases", [[0], [8], [16], [0, 8, 16]])
def test_a_missing_segment_is_corruption(filesystem: FakeFilesystem, bases: list[int]) -> None:
    log_with(filesystem, 20).close()
    for base in bases:
        filesystem.remove(segment(base))
    with pytest.raises(LogCorrupt):
        open_log(filesystem)


def test_swapped_segments_are_corruption(filesystem: FakeFilesystem) -> None:
    log_with(filesystem, 20).close()
    first, second = filesystem.read_file(segment(0)), filesystem.read_file(segment(8))
    write_raw(filesystem, segment(0), 0, second)
    write_raw(filesystem, segment(8), 0, first)
    with pytest.raises(LogCorrupt, match="should have offset 0"):
        open_log(filesystem)


# requirement: L6
@pytest.mark.parametrize("damage", ["missing", "flipped", "empty"])
def test_an_index_that_is_missing_or_wrong_is_built_again(filesystem: FakeFilesystem, damage: str) -> None:
    log_with(filesystem, 20).close()
    path = segment(8, "index")
    if damage == "missing":
        filesystem.remove(path)
    elif damage == "flipped":
        filesystem.flip_bit(path, 20)
    else:
        filesystem.open(path).truncate(0)
    log = open_log(filesystem)
    assert log.recovery.rebuilt == [path]
    assert log.read(Index(11), Index(12), bytes_max=1 << 20).first == 11
    log.close()
    assert open_log(filesystem).recovery.rebuilt == []


# requirement: L6
def test_an_index_whose_entries_rotted_is_built_again_by_the_read_that_needs_it() -> None:
    filesystem = FakeFilesystem()
    log_with(filesystem, 20).close()
    path = segment(0, "index")
    filesystem.flip_bit(path, len(filesystem.read_file(path)) - 1)
    log = open_log(filesystem)
    assert [log.read(Index(at), Index(at), bytes_max=1).first for at in range(20)] == list(range(20))
    assert index_at_time(log, 0) == (0, 0)


def test_a_lost_epochs_file_is_built_again_from_the_batches(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 10, epoch=1)
    log.save_hard_state(HardState(Term(4), None))
    append(log, 10, epoch=4)
    terms = log.terms()
    log.close()
    filesystem.remove(f"{DIRECTORY}/epochs")
    log = open_log(filesystem)
    assert log.recovery.rebuilt == [f"{DIRECTORY}/epochs"]
    assert log.terms() == terms == (EntryId(Term(1), Index(0)), EntryId(Term(4), Index(10)))
    log.close()
    assert open_log(filesystem).recovery.rebuilt == []


def test_a_batch_of_a_term_that_was_never_synced_was_never_promised(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 3, epoch=1)
    log.save_hard_state(HardState(Term(2), None))
    append(log, 2, epoch=2)
    filesystem.restart()  # the batches are in the page cache, the hard state was only in memory
    log = open_log(filesystem)
    assert log.last_index == 2
    assert log.restored(NOBODY).hard_state == HardState(Term(1), NodeId(1))


def test_a_crash_of_the_process_alone_loses_no_byte(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 3)
    append(log, 17)
    filesystem.restart()
    log = open_log(filesystem)
    assert (log.last_index, log.durable_index, log.recovery.torn_tail) == (19, 19, None)
    filesystem.lose_power(random.Random(1))
    assert open_log(filesystem).last_index == 19


# requirement: RT4
@pytest.mark.parametrize("crash_after", range(12))
def test_the_log_start_survives_a_power_loss_at_any_moment_of_a_deletion(crash_after: int) -> None:
    for seed in range(10):
        filesystem = FakeFilesystem()
        log = log_with(filesystem, 40)
        filesystem.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost):
            truncate_prefix(log, Index(30))
        filesystem.lose_power(random.Random(seed))
        log = open_log(filesystem)
        assert log.first_index in (0, 24)
        assert log.last_index == 39
        assert log.term_at(Index(log.first_index - 1)) == (1 if log.first_index else 0)
        names = [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".log")]
        assert names[0] == f"{log.first_index:020d}.log"


@pytest.mark.parametrize(("data", "says"), [(bytes(512), "a vote may be forgotten"), (None, None)])
def test_hard_state_forgotten_by_both_slots_is_corruption(
    filesystem: FakeFilesystem, data: bytes | None, says: str | None
) -> None:
    log_with(filesystem, 1).close()
    for name in ("hard_state.a", "hard_state.b"):
        filesystem.overwrite(f"{DIRECTORY}/{name}", data)
    with pytest.raises(LogCorrupt, match=says):
        open_log(filesystem)


def test_a_power_loss_during_birth_leaves_something_that_opens() -> None:
    for crash_after in range(10):
        for seed in range(10):
            filesystem = FakeFilesystem()
            filesystem.crash_after_changes = crash_after
            with contextlib.suppress(PowerLost):
                open_log(filesystem)
            filesystem.lose_power(random.Random(seed))
            assert open_log(filesystem).last_index == -1


def test_two_slots_that_are_gone_are_no_birth_once_the_replica_may_have_voted() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    log.store_initial_membership(Membership(frozenset({NodeId(1), NodeId(2), NodeId(3)})))
    log.save_hard_state(HardState(Term(1), NodeId(2)))
    sync(log)
    log.close()
    for name in ("hard_state.a", "hard_state.b"):
        filesystem.overwrite(f"{DIRECTORY}/{name}", bytes(SLOT_BYTES))
    with pytest.raises(SlotsInDoubt):
        open_log(filesystem)


def test_a_damaged_checkpoint_is_corruption_and_a_full_disk_keeps_the_old_one() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 3)
    save_checkpoint(log, Index(1), b"state")
    filesystem.capacity_bytes = 0
    with pytest.raises(OSError, match="no room"):
        save_checkpoint(log, Index(2), b"newer")
    assert log.load_checkpoint() == (1, b"state")
    filesystem.flip_bit(f"{DIRECTORY}/snapshot", 15)
    with pytest.raises(LogCorrupt, match="snapshot"):
        log.load_checkpoint()


def test_an_older_log_is_not_mistaken_for_ours_when_the_terms_of_entries_go_down() -> None:
    """A new leader may replace entries of a higher term by entries of a lower one (Raft, figure 8)."""
    new = [storage_batch(2, epoch=3), storage_batch(3, epoch=3)]
    for crash_after in range(12):
        for seed in range(12):
            filesystem = FakeFilesystem()
            log = log_with(filesystem, 2, epoch=2)
            log.save_hard_state(HardState(Term(7), None))
            append(log, 3, epoch=5)
            sync(log)
            old = [storage_batch(at, epoch=5) for at in (2, 3, 4)]
            filesystem.crash_after_changes = crash_after
            with contextlib.suppress(PowerLost):
                truncate_suffix(log, Index(2))
                log.append(new)
            filesystem.lose_power(random.Random(seed))
            found = tail(open_log(filesystem), 2)
            assert found in ([bytes(batch.data) for batch in run[:n]] for run in (old, new) for n in range(4))


def tail(log: SegmentedLog, first: int) -> list[bytes]:
    return [log.read(Index(at), Index(at), bytes_max=1).read() for at in range(first, log.last_index + 1)]


@pytest.mark.parametrize("seed", range(8))
def test_a_second_slot_that_was_lost_at_birth_is_there_before_it_is_written(seed: int) -> None:
    filesystem = FakeFilesystem()
    open_log(filesystem)
    filesystem.remove(f"{DIRECTORY}/hard_state.b")  # its name was not synced when the power went
    filesystem.sync_directory(DIRECTORY)
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(1), NodeId(1)))
    sync(log)
    filesystem.lose_power(random.Random(seed))
    assert open_log(filesystem).restored(NOBODY).hard_state == HardState(Term(1), NodeId(1))
