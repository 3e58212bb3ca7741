"""Who takes part, as the files tell it: in the log, below it, after a crash and after damage."""

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
from raftlog.storage.log_storage import LogStorage
from raftlog.storage.members import MEMBERS_NAME, batch_of, membership_in
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Index, NodeId, Term
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
    log.truncate_suffix(Index(4))
    assert found(log) == (BIRTH, [(1, WITH_LEARNER)])
    fill(log, JOINT, None, None, None)
    assert log.truncate_prefix(Index(3)) > 1
    assert found(log) == (WITH_LEARNER, [(4, JOINT)])
    log.truncate_prefix(Index(7))
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
    again.truncate_suffix(Index(4))
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
            log.truncate_prefix(Index(6))
        filesystem.lose_power(random.Random(seed))
        again = open_log(filesystem)
        base, inside = found(again)
        known = [(-1, BIRTH), (1, WITH_LEARNER), (4, JOINT), (6, JOINT.leave_joint())]
        assert base == [membership for at, membership in known if at < again.first_index][-1]
        assert inside == [(at, membership) for at, membership in known if at >= again.first_index]
        filesystem.crash_after_changes = crash_after  # the next cut fares no better
        with contextlib.suppress(PowerLost):
            again.truncate_prefix(Index(9))
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
        log.truncate_prefix(Index(5))
    assert (log.first_index, *found(log)) == (0, BIRTH, [(1, WITH_LEARNER), (4, JOINT)])
    filesystem.capacity_bytes = None
    assert log.truncate_prefix(Index(5)) > 0
