"""Members and snapshots as the files of a log keep them, after crashes and after damage."""

from __future__ import annotations

import contextlib
import random

import pytest

from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import HardState
from raftlog.errors import CorruptBatch, LogCorrupt
from raftlog.records.batch import Batch
from raftlog.records.control import (
    ControlType,
    MemberLists,
    control_type,
    decode_members,
    encode_members,
    leader_change_batch,
)
from raftlog.storage.epochs import EPOCHS_NAME
from raftlog.storage.log_storage import LogStorage, carry_out
from raftlog.storage.members import MEMBERS_NAME, batch_of, membership_in
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import install, save_checkpoint, truncate_prefix, truncate_suffix
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import sync_written
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.raft_member import members
from tests.helpers.storage_batches import storage_batch

DIRECTORY = "/log"
BIRTH = members(1, 2, 3)
WITH_LEARNER = members(1, 2, 3, learners=[4])
JOINT = members(2, 3, 4, outgoing=[1, 2, 3])


def open_log(filesystem: FakeFilesystem) -> SegmentedLog:
    """Two batches or so to a segment."""
    settings = LogSettings(segment_bytes=2 * len(storage_batch(0).data), index_interval_bytes=512)
    return SegmentedLog.open(filesystem, DIRECTORY, settings, ManualWallClock())


def says(index: int, membership: Membership) -> Batch:
    """A membership as an entry."""
    return batch_of(membership, index=Index(index), term=Term(1), timestamp_ms=5)


def fill(log: LogStorage, *entries: Membership | None) -> None:
    """One entry each, on the disk."""
    for membership in entries:
        at = log.last_index + 1
        log.append([storage_batch(at) if membership is None else says(at, membership)])
    sync_written(log)


def found(log: LogStorage) -> tuple[Membership, list[tuple[int, Membership]]]:
    """The membership that the log begins with, and those in it."""
    restored = log.restored(members(9))
    return restored.membership, [(entry.index, entry.membership) for entry in restored.memberships]


def test_a_membership_survives_its_record_and_nothing_else_passes_for_one() -> None:
    for membership in (NOBODY, BIRTH, WITH_LEARNER, JOINT):
        batch = says(7, membership)
        assert membership_in(batch) == membership
        assert control_type(batch) is ControlType.MEMBERSHIP
        assert says(7, membership).data == batch.data
    change = leader_change_batch(base_offset=0, leader_epoch=1, leader=NodeId(1), timestamp_ms=0)
    assert membership_in(change) is None
    assert membership_in(storage_batch(0)) is None
    value = encode_members(MemberLists(JOINT.voters, JOINT.learners, JOINT.outgoing))
    for wrong in (b"", value[:-1], value + b"\0", b"\0\1" + value[2:]):
        with pytest.raises(CorruptBatch, match="membership"):
            decode_members(wrong)


@pytest.mark.parametrize("kind", ["segments", "memory"])
def test_the_log_tells_its_memberships(kind: str) -> None:
    log: LogStorage = open_log(FakeFilesystem()) if kind == "segments" else MemoryLog(segment_batches=2)
    log.save_hard_state(HardState(Term(1), None))
    assert found(log) == (members(9), [])
    log.store_initial_membership(BIRTH)
    log.store_initial_membership(NOBODY)
    fill(log, None, WITH_LEARNER, None, None, JOINT, None, None)
    assert found(log) == (BIRTH, [(1, WITH_LEARNER), (4, JOINT)])
    truncate_suffix(log, Index(4))
    assert found(log) == (BIRTH, [(1, WITH_LEARNER)])
    fill(log, JOINT, None, None, None)
    assert truncate_prefix(log, Index(3)) > 1
    assert found(log) == (WITH_LEARNER, [(4, JOINT)])
    truncate_prefix(log, Index(7))
    assert found(log) == (JOINT, [])


@pytest.mark.parametrize("lost", [None, EPOCHS_NAME])
def test_memberships_are_found_again_also_without_the_epochs_file(lost: str | None) -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(1), None))
    log.store_initial_membership(BIRTH)
    fill(log, None, WITH_LEARNER, None, None, JOINT, None, None, None)
    log.close()
    if lost is not None:
        filesystem.remove(f"{DIRECTORY}/{lost}")
    again = open_log(filesystem)
    assert found(again) == (BIRTH, [(1, WITH_LEARNER), (4, JOINT)])
    truncate_suffix(again, Index(4))
    again.close()
    assert found(open_log(filesystem)) == (BIRTH, [(1, WITH_LEARNER)])


def test_what_a_log_was_born_with_is_durable_before_any_vote(filesystem: FakeFilesystem) -> None:
    log = open_log(filesystem)
    log.store_initial_membership(NOBODY)
    filesystem.restart()
    assert found(open_log(filesystem)) == (members(9), [])
    log = open_log(filesystem)
    log.store_initial_membership(NOBODY)
    log.save_hard_state(HardState(Term(1), NodeId(2)))
    sync_written(log)
    filesystem.restart()
    assert found(open_log(filesystem)) == (NOBODY, [])


def test_a_damaged_file_is_refused_and_names_the_remedy(filesystem: FakeFilesystem) -> None:
    log = open_log(filesystem)
    log.store_initial_membership(BIRTH)
    sync_written(log)
    log.close()
    filesystem.replace_file(f"{DIRECTORY}/{MEMBERS_NAME}", b"RLM1 not what it was")
    with pytest.raises(LogCorrupt, match="repairs it from the other replicas"):
        open_log(filesystem)


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_at_any_moment_of_a_cut_leaves_the_right_membership(seed: int) -> None:
    for crash_after in range(15):
        filesystem = FakeFilesystem()
        log = open_log(filesystem)
        log.save_hard_state(HardState(Term(1), None))
        log.store_initial_membership(BIRTH)
        fill(log, None, WITH_LEARNER, None, None, JOINT, None, JOINT.leave_joint(), None, None, None)
        filesystem.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost):
            truncate_prefix(log, Index(6))
        filesystem.lose_power(random.Random(seed))
        again = open_log(filesystem)
        base, inside = found(again)
        known = [(-1, BIRTH), (1, WITH_LEARNER), (4, JOINT), (6, JOINT.leave_joint())]
        assert base == [membership for at, membership in known if at < again.first_index][-1]
        assert inside == [(at, membership) for at, membership in known if at >= again.first_index]
        filesystem.crash_after_changes = crash_after  # the next cut fares no better
        with contextlib.suppress(PowerLost):
            truncate_prefix(again, Index(9))
        filesystem.lose_power(random.Random(seed))
        third = open_log(filesystem)
        assert found(third)[0] == [membership for at, membership in known if at < third.first_index][-1]


def test_a_full_disk_lets_votes_be_saved_and_keeps_the_old_start(filesystem: FakeFilesystem) -> None:
    log = open_log(filesystem)
    log.store_initial_membership(BIRTH)
    filesystem.capacity_bytes = 0
    log.save_hard_state(HardState(Term(1), NodeId(1)))
    sync_written(log)
    filesystem.capacity_bytes = None
    fill(log, None, WITH_LEARNER, None, None, JOINT, None)
    filesystem.capacity_bytes = 0
    with pytest.raises(OSError, match="no room"):
        truncate_prefix(log, Index(5))
    assert (log.first_index, *found(log)) == (0, BIRTH, [(1, WITH_LEARNER), (4, JOINT)])
    filesystem.capacity_bytes = None
    assert truncate_prefix(log, Index(5)) > 0


LATER = members(2, 3, 4)
VOTE = HardState(Term(7), NodeId(2))


def open_small_log(filesystem: FakeFilesystem) -> SegmentedLog:
    """Two batches to a segment."""
    settings = LogSettings(segment_bytes=2 * len(storage_batch(0).data), index_interval_bytes=512)
    return SegmentedLog.open(filesystem, DIRECTORY, settings, ManualWallClock())


def log_with(filesystem: FakeFilesystem, entries: int, *, epoch: int = 5) -> SegmentedLog:
    """So many entries, three to a batch, durable."""
    log = open_small_log(filesystem)
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
    save_checkpoint(log, Index(13), b"close")
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
    assert truncate_prefix(log, Index(12)) == 12
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
    install(log, snapshot, LATER, b"state")
    for found in (log, open_small_log(filesystem)):
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
    install(log, EntryId(Term(3), Index(22)), LATER, b"state")
    log.append([storage_batch(23, 3, epoch=3), storage_batch(26, 3, epoch=6)])
    sync_written(log)
    filesystem.lose_power(random.Random(1))
    again = open_small_log(filesystem)
    assert (again.first_index, again.last_index) == (23, 28)
    assert again.terms() == (EntryId(Term(3), Index(23)), EntryId(Term(6), Index(26)))
    assert again.recovery.torn_tail is None


def test_an_epochs_file_from_before_a_snapshot_says_nothing_of_what_follows() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 18, epoch=5)
    stale = filesystem.read_file(f"{DIRECTORY}/{EPOCHS_NAME}")
    install(log, EntryId(Term(3), Index(22)), LATER, b"state")
    log.append([storage_batch(23, 3, epoch=3)])
    sync_written(log)
    filesystem.restart()
    filesystem.replace_file(f"{DIRECTORY}/{EPOCHS_NAME}", stale)  # its removal was not on the disk
    again = open_small_log(filesystem)
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
            install(log, EntryId(Term(6), Index(22)), LATER, b"state")
            log.append([storage_batch(23, 3, epoch=6)])
            sync_written(log)
        is_done = filesystem.crash_after_changes is not None and filesystem.crash_after_changes >= 0
        if seed % 3:
            filesystem.lose_power(random.Random(seed))
        else:
            filesystem.restart()
        again = open_small_log(filesystem)
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
        save_checkpoint(log, Index(14), b"state")
        log.close()
    names = [f"{DIRECTORY}/{name}" for name in (f"{12:020d}.state", "snapshot")]
    for name in names:
        other.overwrite(name, one.read_file(name))
    found = open_small_log(other)
    assert found.load_checkpoint() is None
    assert not found.states.has(Index(12)), "it is kept again when the log gets there"
    assert not other.exists(names[0])
    found.close()
    assert open_small_log(one).load_checkpoint() == (14, b"state")


# requirement: L9
def test_a_state_that_reached_the_disk_before_its_entries_is_dropped() -> None:
    found = set()
    for seed in range(10):
        filesystem = FakeFilesystem()
        log = log_with(filesystem, 9)
        log.append([storage_batch(base, 3, epoch=5) for base in (9, 12)])
        log.states.save(at(11), b"a majority holds its entries")
        filesystem.lose_power(random.Random(seed))
        again = open_small_log(filesystem)
        found.add((again.last_index >= 11, again.states.standing))
    assert found == {(True, (12,)), (False, ())}


def test_a_damaged_state_is_not_taken_for_one_of_another_log(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 30)
    log.states.save(at(11), b"state")
    log.close()
    path = f"{DIRECTORY}/{12:020d}.state"
    filesystem.flip_bit(path, 19)  # within its term
    again = open_small_log(filesystem)
    assert filesystem.exists(path), "it is reported"
    with pytest.raises(LogCorrupt):
        again.load_checkpoint()


def test_superseded_states_are_gone_from_the_disk_and_those_that_count_stay() -> None:
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 30)
    for index in (5, 11, 17):
        log.states.keep(at(index), b"at %d" % (index + 1))
    sync_written(log)
    save_checkpoint(log, Index(14), b"at 15")
    carry_out(log.superseded_states_change(Index(24)))
    filesystem.lose_power(random.Random(1))
    filesystem.restart()
    assert open_small_log(filesystem).load_checkpoint() is None
    log = open_small_log(filesystem)
    log.states.keep(at(20), b"at 21")  # not on the disk yet
    log.states.keep(at(23), b"at 24")
    carry_out(log.superseded_states_change(Index(24)))
    log.states.flush()
    assert log.states.standing == (24,)
    save_checkpoint(log, Index(26), b"at 27")
    carry_out(log.superseded_states_change(Index(24)))
    assert log.states.standing == (24,)
    assert open_small_log(filesystem).load_checkpoint() == (26, b"at 27")


def test_the_state_at_the_log_start_is_never_superseded(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 30)
    log.states.keep(at(11), b"at 12")
    sync_written(log)
    truncate_prefix(log, Index(12))
    assert log.first_index == 12
    carry_out(log.superseded_states_change(Index(24)))
    assert open_small_log(filesystem).load_checkpoint() == (11, b"at 12")
