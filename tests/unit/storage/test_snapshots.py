"""States where segments begin, and a log that a snapshot replaces: after a crash it is one or the other."""

from __future__ import annotations

import contextlib
import random

import pytest

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage.epochs import EPOCHS_NAME
from raftlog.storage.log_storage import carry_out
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import sync_written
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.raft_member import members
from tests.helpers.storage_batches import storage_batch

DIRECTORY = "/log"
BIRTH = members(1, 2, 3)
LATER = members(2, 3, 4)
VOTE = HardState(Term(7), NodeId(2))


def open_log(filesystem: FakeFilesystem) -> SegmentedLog:
    """Two batches to a segment."""
    settings = LogSettings(segment_bytes=2 * len(storage_batch(0).data), index_interval_bytes=512)
    return SegmentedLog.open(filesystem, DIRECTORY, settings, ManualWallClock())


def log_with(filesystem: FakeFilesystem, entries: int, *, epoch: int = 5) -> SegmentedLog:
    """So many entries, three to a batch, durable."""
    log = open_log(filesystem)
    log.store_initial_membership(BIRTH)
    log.save_hard_state(VOTE)
    for base in range(0, entries, 3):
        log.append([storage_batch(base, 3, epoch=epoch)])
    sync_written(log)
    return log


def at(index: int, term: int = 5) -> EntryId:
    return EntryId(Term(term), Index(index))


def test_a_state_stands_with_the_next_sync_and_the_newest_sound_one_counts() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 30)
    log.states.keep(at(5), b"at 6")
    log.states.keep(at(11), b"at 12")
    assert log.states.standing == ()
    assert log.states.has(Index(12))
    sync_written(log)
    assert log.states.standing == (6, 12)
    assert log.load_checkpoint() == (11, b"at 12")
    log.save_checkpoint(Index(13), b"close")
    assert log.load_checkpoint() == (13, b"close")
    filesystem.flip_bit(f"{DIRECTORY}/snapshot", 15)
    assert log.load_checkpoint() == (11, b"at 12")
    filesystem.flip_bit(f"{DIRECTORY}/{12:020d}.state", 15)
    assert log.load_checkpoint() == (5, b"at 6")
    assert (log.states.load(Index(12)), log.states.load(Index(6))) == (None, b"at 6")
    filesystem.flip_bit(f"{DIRECTORY}/{6:020d}.state", 15)
    with pytest.raises(LogCorrupt):
        log.load_checkpoint()


def test_states_below_the_log_start_go_and_a_full_disk_only_puts_states_off() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 30)
    filesystem.capacity_bytes = 0
    log.states.keep(at(5), b"no room")
    sync_written(log)
    assert log.states.standing == ()
    filesystem.capacity_bytes = None
    for base in (6, 12, 18):
        log.states.save(at(base - 1), b"at %d" % base)
    assert log.truncate_prefix(Index(12)) == 12
    assert log.states.standing == (12, 18)
    sync_written(log)
    log.close()
    assert [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".state")] == [
        f"{12:020d}.state",
        f"{18:020d}.state",
    ]


@pytest.mark.parametrize(
    "entries", [0, 9, 30, 60]
)  # nothing, a shorter log, a conflict inside, one far behind
def test_a_snapshot_replaces_the_whole_log(filesystem: FakeFilesystem, entries: int) -> None:
    log = log_with(filesystem, entries)
    snapshot = EntryId(Term(3), Index(22))
    log.install(snapshot, LATER, b"state")
    for found in (log, open_log(filesystem)):
        assert (found.first_index, found.last_index, found.durable_index) == (23, 22, 22)
        assert found.load_checkpoint() == (22, b"state")
        restored = found.restored(BIRTH)
        assert (restored.membership, restored.memberships) == (LATER, ())
        assert (restored.snapshot, restored.last, restored.terms) == (snapshot, snapshot, ())
        assert (restored.hard_state, restored.commit_hint) == (VOTE, 22)
    names = [name for name in filesystem.list_directory(DIRECTORY) if name.endswith((".log", ".state"))]
    assert names == [f"{23:020d}.log", f"{23:020d}.state"]


def test_the_log_goes_on_behind_a_snapshot_also_in_an_earlier_term_than_what_was_cut() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 30, epoch=5)
    log.install(EntryId(Term(3), Index(22)), LATER, b"state")
    log.append([storage_batch(23, 3, epoch=3), storage_batch(26, 3, epoch=6)])
    sync_written(log)
    filesystem.lose_power(random.Random(1))
    again = open_log(filesystem)
    assert (again.first_index, again.last_index) == (23, 28)
    assert again.terms() == (EntryId(Term(3), Index(23)), EntryId(Term(6), Index(26)))
    assert again.recovery.torn_tail is None


def test_an_epochs_file_from_before_a_snapshot_says_nothing_of_what_follows() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 18, epoch=5)
    stale = filesystem.read_file(f"{DIRECTORY}/{EPOCHS_NAME}")
    log.install(EntryId(Term(3), Index(22)), LATER, b"state")
    log.append([storage_batch(23, 3, epoch=3)])
    sync_written(log)
    filesystem.restart()
    filesystem.replace_file(f"{DIRECTORY}/{EPOCHS_NAME}", stale)  # its removal was not on the disk
    again = open_log(filesystem)
    assert (again.last_index, again.terms()) == (25, (EntryId(Term(3), Index(23)),))


@pytest.mark.parametrize("entries", [0, 9, 30])
@pytest.mark.parametrize("seed", range(12))
def test_a_crash_at_any_moment_of_an_install_leaves_the_old_log_or_the_new_one(
    entries: int, seed: int
) -> None:
    seen = set()
    for crash_after in range(60):
        filesystem = FakeFilesystem()
        log = log_with(filesystem, entries)
        filesystem.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost):
            log.install(EntryId(Term(6), Index(22)), LATER, b"state")
            log.append([storage_batch(23, 3, epoch=6)])
            sync_written(log)
        is_done = filesystem.crash_after_changes is not None and filesystem.crash_after_changes >= 0
        if seed % 3:
            filesystem.lose_power(random.Random(seed))
        else:
            filesystem.restart()
        again = open_log(filesystem)
        restored = again.restored(BIRTH)
        assert restored.hard_state == VOTE
        seen.add(int(again.first_index))
        if again.first_index == 23:
            assert again.load_checkpoint() == (22, b"state")
            assert (restored.membership, restored.memberships) == (LATER, ())
            assert again.last_index in (22, 25)
        else:
            assert again.first_index == 0
            assert restored.membership == BIRTH
            assert again.last_index >= min(entries, 21) - 1  # only what conflicts was cut
            again.append([storage_batch(again.last_index + 1, 3, epoch=6)])
            sync_written(again)
        if is_done and crash_after > 30:
            break
    assert seen == {0, 23}


# requirement: L9
def test_a_state_counts_only_where_the_log_holds_its_entry() -> None:
    one, other = FakeFilesystem(), FakeFilesystem()
    for filesystem, epoch in ((one, 5), (other, 4)):
        log = log_with(filesystem, 30, epoch=epoch)
        log.states.save(at(11, epoch), b"state")
        log.save_checkpoint(Index(14), b"state")
        log.close()
    names = [f"{DIRECTORY}/{name}" for name in (f"{12:020d}.state", "snapshot")]
    for name in names:
        other.overwrite(name, one.read_file(name))
    found = open_log(other)
    assert found.load_checkpoint() is None
    assert not found.states.has(Index(12)), "it is kept again when the log gets there"
    assert not other.exists(names[0])
    found.close()
    assert open_log(one).load_checkpoint() == (14, b"state")


# requirement: L9
def test_a_state_that_reached_the_disk_before_its_entries_is_dropped() -> None:
    found = set()
    for seed in range(10):
        filesystem = FakeFilesystem()
        log = log_with(filesystem, 9)
        log.append([storage_batch(base, 3, epoch=5) for base in (9, 12)])
        log.states.save(at(11), b"a majority holds its entries")
        filesystem.lose_power(random.Random(seed))
        again = open_log(filesystem)
        found.add((again.last_index >= 11, again.states.standing))
    assert found == {(True, (12,)), (False, ())}


def test_a_damaged_state_is_not_taken_for_one_of_another_log(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 30)
    log.states.save(at(11), b"state")
    log.close()
    path = f"{DIRECTORY}/{12:020d}.state"
    filesystem.flip_bit(path, 19)  # within its term
    again = open_log(filesystem)
    assert filesystem.exists(path), "it is reported"
    with pytest.raises(LogCorrupt):
        again.load_checkpoint()


def test_superseded_states_are_gone_from_the_disk_and_those_that_count_stay() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 30)
    for index in (5, 11, 17):
        log.states.keep(at(index), b"at %d" % (index + 1))
    sync_written(log)
    log.save_checkpoint(Index(14), b"at 15")
    carry_out(log.superseded_states_change(Index(24)))
    filesystem.lose_power(random.Random(1))
    filesystem.restart()
    assert open_log(filesystem).load_checkpoint() is None
    log = open_log(filesystem)
    log.states.keep(at(20), b"at 21")  # not on the disk yet
    log.states.keep(at(23), b"at 24")
    carry_out(log.superseded_states_change(Index(24)))
    log.states.flush()
    assert log.states.standing == (24,)
    log.save_checkpoint(Index(26), b"at 27")
    carry_out(log.superseded_states_change(Index(24)))
    assert log.states.standing == (24,)
    assert open_log(filesystem).load_checkpoint() == (26, b"at 27")


def test_the_state_at_the_log_start_is_never_superseded(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 30)
    log.states.keep(at(11), b"at 12")
    sync_written(log)
    log.truncate_prefix(Index(12))
    assert log.first_index == 12
    carry_out(log.superseded_states_change(Index(24)))
    assert open_log(filesystem).load_checkpoint() == (11, b"at 12")
