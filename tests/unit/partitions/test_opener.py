"""How the log of a partition's replica begins."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace

import pytest

from partitions.hosting.directories import Folders
from partitions.hosting.opener import MetadataBehind, ReplicaOpener
from partitions.hosting.trash import Trash
from partitions.metadata.image import PartitionInfo, TopicInfo, UnsafeRecovery
from raftlog.clock import SystemClock
from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.hosting.opener import LogOpener
from raftlog.storage.replica_progress import Progress, ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.slots import SLOT_BYTES
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import BEFORE_LOG, GroupId, NodeId, Term, TopicId

ME, OTHER = NodeId(1), NodeId(2)
GROUP = GroupId(7)


def openings(filesystem: FakeFilesystem) -> ReplicaOpener:
    trash = Trash(filesystem, "/data", SystemClock(), asyncio.to_thread)
    folders = Folders(filesystem, "/data", asyncio.to_thread, trash)
    registry = ReplicaRegistry.open(filesystem, "/data", random.Random(1))
    logs = LogOpener(filesystem, "/data", SystemClock(), registry, ReplicaProgress.open(filesystem, "/data"))
    return ReplicaOpener(ME, logs, folders)


def topic(partition: PartitionInfo) -> TopicInfo:
    return TopicInfo(
        name="orders",
        topic_id=TopicId("0" * 32),
        replication_factor=3,
        partitions=(partition,),
        config={},
        version=1,
    )


def placed(*, recovered_from: NodeId | None = None, added: tuple[NodeId, ...] = ()) -> PartitionInfo:
    records = ()
    if recovered_from is not None:
        records = (
            UnsafeRecovery(
                survivor=recovered_from, lost=(), last_term=1, last_index=1, commit_index=1, at_ms=0
            ),
        )
    return PartitionInfo(
        partition=0,
        group_id=GROUP,
        replicas=(ME, OTHER),
        added=added,
        unsafe_recoveries=records,
    )


def directory(filesystem: FakeFilesystem) -> str:
    return openings(filesystem).folders.of_partition(topic(placed()), 0)


def test_a_log_begins_with_the_first_membership_while_that_is_in_force() -> None:
    made = openings(FakeFilesystem())
    first = Membership(frozenset({ME, OTHER}))
    assert made.first_membership(placed()) == first
    assert made.first_membership(placed(added=(ME,))) == first
    assert made.first_membership(replace(placed(), membership_index=3)) == NOBODY


def is_rejoining(filesystem: FakeFilesystem, partition: PartitionInfo) -> bool:
    """Whether a replica that is opened now gives no vote yet."""
    log = openings(filesystem).open(topic(partition), partition, may_begin=True)
    found = log.restored(NOBODY).hard_state.is_rejoining
    log.close()
    return found


# requirement: F6
def test_only_initial_replicas_begin_with_a_vote() -> None:
    assert not is_rejoining(FakeFilesystem(), placed())
    assert is_rejoining(FakeFilesystem(), placed(added=(ME,)))
    assert is_rejoining(FakeFilesystem(), replace(placed(), membership_index=3))


def test_only_initial_replicas_begin_their_log_behind_the_first_offset() -> None:
    for added, last_index in ((), 8), ((ME,), -1):
        partition = replace(placed(added=added), first_offset=9)
        log = openings(FakeFilesystem()).open(topic(partition), partition, may_begin=True)
        assert log.last_index == last_index
        log.close()


# requirement: F6
def test_a_replica_whose_folder_is_gone_rejoins_and_goes_on_doing_so_until_it_has() -> None:
    filesystem = FakeFilesystem()
    assert not is_rejoining(filesystem, placed())
    openings(filesystem).logs.registry.add([GROUP])
    assert not is_rejoining(filesystem, placed())  # its files say that it has forgotten nothing
    filesystem.remove_tree(directory(filesystem))
    assert is_rejoining(filesystem, placed())
    assert is_rejoining(filesystem, placed())


# requirement: F6
def test_the_survivor_votes_alone_in_a_new_term_behind_its_whole_log_and_others_resync_fully() -> None:
    filesystem = FakeFilesystem()
    partition = placed()
    log = openings(filesystem).open(topic(partition), partition, may_begin=True)
    log.save_hard_state(HardState(Term(4), OTHER))
    log.close()
    recovered = placed(recovered_from=ME)
    log = openings(filesystem).open(topic(recovered), recovered, may_begin=True)
    restored = log.restored(NOBODY)
    assert restored.hard_state == HardState(Term(5), ME)
    assert restored.memberships[-1].membership == Membership(frozenset({ME}))
    log.close()
    log = openings(filesystem).open(topic(recovered), recovered, may_begin=True)  # once is enough
    assert log.restored(NOBODY).hard_state == HardState(Term(5), ME)
    log.close()
    with pytest.raises(MetadataBehind):
        openings(filesystem).open(topic(partition), partition, may_begin=True)
    given_up = FakeFilesystem()
    log = openings(given_up).open(topic(partition), partition, may_begin=True)
    log.save_hard_state(HardState(Term(4), OTHER))
    log.close()
    elsewhere = placed(recovered_from=OTHER)
    with pytest.raises(MetadataBehind, match="waiting for current metadata"):
        openings(given_up).open(topic(elsewhere), elsewhere, may_begin=False)
    assert given_up.exists(directory(given_up))
    log = openings(given_up).open(topic(elsewhere), elsewhere, may_begin=True)
    assert log.restored(NOBODY).hard_state.term == 0


# requirement: F6
@pytest.mark.parametrize("lost", ["recovery", "recovery.twin"])
def test_a_survivor_that_loses_a_mark_does_not_vote_alone_once_more(lost: str) -> None:
    filesystem = FakeFilesystem()
    partition, recovered = placed(), placed(recovered_from=ME)
    for info in (partition, recovered):
        log = openings(filesystem).open(topic(info), info, may_begin=True)
        log.save_hard_state(HardState(Term(log.restored(NOBODY).hard_state.term + 4), OTHER))
        before = log.restored(NOBODY)
        log.close()
    filesystem.overwrite(f"{directory(filesystem)}/{lost}", None)
    log = openings(filesystem).open(topic(recovered), recovered, may_begin=True)
    assert log.restored(NOBODY) == before


# requirement: F6
def test_a_survivor_that_loses_both_marks_keeps_the_membership_that_its_group_has_reached() -> None:
    filesystem = FakeFilesystem()
    partition, recovered = placed(), placed(recovered_from=ME)
    for info in (partition, recovered):
        log = openings(filesystem).open(topic(info), info, may_begin=True)
        log.save_hard_state(HardState(Term(log.restored(NOBODY).hard_state.term + 4), OTHER))
        before = log.restored(NOBODY)
        log.close()
    openings(filesystem).logs.registry.add([GROUP])
    for lost in ("recovery", "recovery.twin"):
        filesystem.overwrite(f"{directory(filesystem)}/{lost}", None)
    log = openings(filesystem).open(topic(recovered), recovered, may_begin=True)
    assert log.restored(NOBODY) == before
    log.close()
    assert openings(filesystem).folders.recovery_of(directory(filesystem)) == 1


# requirement: F6
@pytest.mark.parametrize("is_registered", [True, False])
def test_a_survivor_whose_folder_is_gone_rejoins_the_group_that_has_grown(is_registered: bool) -> None:
    filesystem = FakeFilesystem()
    grown = replace(placed(recovered_from=ME), membership_index=3)
    if is_registered:
        openings(filesystem).logs.registry.add([GROUP])
    assert is_rejoining(filesystem, grown)


# requirement: F6
def test_another_replica_that_loses_both_marks_rejoins_with_nothing() -> None:
    filesystem, elsewhere = FakeFilesystem(), placed(recovered_from=OTHER)
    assert not is_rejoining(filesystem, elsewhere)
    openings(filesystem).logs.registry.add([GROUP])
    for lost in ("recovery", "recovery.twin"):
        filesystem.overwrite(f"{directory(filesystem)}/{lost}", None)
    assert is_rejoining(filesystem, elsewhere)


# requirement: F6
def test_a_survivor_whose_folder_is_gone_before_it_has_grown_is_reported() -> None:
    filesystem, alone = FakeFilesystem(), placed(recovered_from=ME)
    with pytest.raises(LogCorrupt, match="recovered from it"):
        openings(filesystem).open(topic(alone), alone, may_begin=True)


# requirement: F6
@pytest.mark.parametrize("room", [0, SLOT_BYTES, 2 * SLOT_BYTES, 2 * SLOT_BYTES + 60])
def test_a_replica_that_lost_its_files_rejoins_though_a_full_disk_cuts_its_creation_short(room: int) -> None:
    """The first attempt leaves slots that are empty, or one that is whole beside an empty one."""
    filesystem = FakeFilesystem()
    assert not is_rejoining(filesystem, placed())
    openings(filesystem).logs.registry.add([GROUP])
    filesystem.remove_tree(directory(filesystem))
    filesystem.capacity_bytes = filesystem.used_bytes + room
    for _ in range(2):
        with contextlib.suppress(OSError):
            assert is_rejoining(filesystem, placed())
    filesystem.capacity_bytes = None
    assert is_rejoining(filesystem, placed())


def test_a_replica_whose_first_creation_was_cut_short_is_still_a_new_one() -> None:
    filesystem = FakeFilesystem()
    openings(filesystem)  # the registry's files are there first
    filesystem.capacity_bytes = filesystem.used_bytes
    with pytest.raises(OSError, match="no room"):
        is_rejoining(filesystem, placed())
    filesystem.capacity_bytes = None
    assert not is_rejoining(filesystem, placed())


def an_older_copy(partition: PartitionInfo) -> FakeFilesystem:
    """A disk with a replica that has voted, found to be an older copy and not opened since."""
    filesystem = FakeFilesystem()
    made = openings(filesystem)
    log = made.open(topic(partition), partition, may_begin=True)
    log.save_hard_state(HardState(Term(4), OTHER))
    log.close()
    made.logs.registry.add([GROUP])
    made.logs.registry.begin_again(random.Random(2))
    return filesystem


# requirement: F6
def test_an_older_copy_of_a_replica_rejoins_with_what_it_has() -> None:
    filesystem = an_older_copy(placed())
    with pytest.raises(MetadataBehind, match="older copy"):
        openings(filesystem).open(topic(placed()), placed(), may_begin=False)
    for _ in range(2):
        log = openings(filesystem).open(topic(placed()), placed(), may_begin=True)
        assert log.restored(NOBODY).hard_state == HardState(Term(4), OTHER, is_rejoining=True)
        log.close()
    openings(filesystem).logs.registry.add([GROUP])
    log = openings(filesystem).open(topic(placed()), placed(), may_begin=True)
    log.save_hard_state(HardState(Term(5), None))  # it has rejoined
    log.close()
    assert not is_rejoining(filesystem, placed())


# requirement: F6
def test_an_older_copy_of_the_only_replica_serves_since_no_other_has_more() -> None:
    alone = replace(placed(), replicas=(ME,))
    assert not is_rejoining(an_older_copy(alone), alone)
    moving = replace(alone, target=(OTHER,))
    assert is_rejoining(an_older_copy(moving), moving)


def an_older_folder(partition: PartitionInfo) -> FakeFilesystem:
    """A replica that had voted once more than its folder knows."""
    filesystem = FakeFilesystem()
    made = openings(filesystem)
    made.open(topic(partition), partition, may_begin=True).close()
    made.logs.registry.add([GROUP])
    noted = Progress(Term(4), OTHER, BEFORE_LOG, is_only=False)
    made.logs.progress.keep({GROUP: noted}, {GROUP})
    return filesystem


# requirement: F6
def test_an_older_copy_of_one_folder_rejoins_unless_it_is_the_only_replica(
    caplog: pytest.LogCaptureFixture,
) -> None:
    filesystem = an_older_folder(placed())
    with pytest.raises(MetadataBehind, match="older copy"):
        openings(filesystem).open(topic(placed()), placed(), may_begin=False)
    assert is_rejoining(filesystem, placed())
    assert "is an older copy (its log knows term 0, but had term 4)" in caplog.text
    assert is_rejoining(filesystem, placed())
    alone = replace(placed(), replicas=(ME,))
    assert not is_rejoining(an_older_folder(alone), alone)
    assert "records may be lost, and no other replica has them" in caplog.text
    moving = replace(alone, target=(OTHER,))
    assert is_rejoining(an_older_folder(moving), moving)


# requirement: F6
def test_an_older_copy_from_before_an_unsafe_recovery_is_no_survivor() -> None:
    filesystem, recovered = an_older_copy(placed()), placed(recovered_from=ME, added=(ME,))
    log = openings(filesystem).open(topic(recovered), recovered, may_begin=True)
    assert log.restored(NOBODY).hard_state == HardState(Term(0), None, is_rejoining=True)
    log.close()
    assert [name for name in filesystem.list_directory("/data/trash") if "older-copy" in name]
