"""Notes of a disk about its replicas, their progress and its age, also when files are lost."""

from __future__ import annotations

import contextlib
import random
from unittest.mock import Mock

import pytest

from raftlog.clock import SystemClock
from raftlog.core.membership import NOBODY
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated
from raftlog.hosting.opener import make_durable
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.disk_age import DISKS_MAX, RUNS_MAX, Disk, DiskAge, Run
from raftlog.storage.replica_progress import PROGRESS_FILE, Progress, ReplicaProgress, progress_of
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import install
from raftlog.types import METADATA_GROUP, EntryId, GroupId, Index, NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

FIVE, SIX = GroupId(5), GroupId(6)


def opened(filesystem: FakeFilesystem, seed: int = 1) -> ReplicaRegistry:
    return ReplicaRegistry.open(filesystem, "/data", random.Random(seed))


# requirement: F6
def test_what_was_added_is_known_after_a_power_loss(filesystem: FakeFilesystem) -> None:
    registry = opened(filesystem)
    registry.add([METADATA_GROUP, FIVE])
    filesystem.lose_power(random.Random(1))
    again = opened(filesystem, seed=2)
    assert again.disk_id == registry.disk_id
    assert [again.has_held(group) for group in (METADATA_GROUP, FIVE, SIX)] == [True, True, False]


def test_groups_that_are_no_more_are_forgotten(filesystem: FakeFilesystem) -> None:
    registry = opened(filesystem)
    registry.add([FIVE, SIX])
    registry.keep_only([SIX, METADATA_GROUP])
    assert [opened(filesystem).has_held(group) for group in (METADATA_GROUP, FIVE, SIX)] == [
        False,
        False,
        True,
    ]


# requirement: F6
@pytest.mark.parametrize("error", [OSError(28, "no space"), MemoryError()], ids=repr)
def test_a_group_whose_note_has_failed_is_noted_by_the_next_attempt(
    filesystem: FakeFilesystem, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = opened(filesystem)
    with monkeypatch.context() as patched:
        patched.setattr("raftlog.storage.twin_file.keep", Mock(side_effect=error))
        with pytest.raises(type(error)):
            registry.add([FIVE])
    registry.add([FIVE])
    assert opened(filesystem).has_held(FIVE)


# requirement: F6
@pytest.mark.parametrize("lost", ["disk_id", "replicas"])
def test_without_one_of_its_files_the_disk_passes_for_another(filesystem: FakeFilesystem, lost: str) -> None:
    before = opened(filesystem)
    before.add([FIVE])
    for ending in ("", ".twin"):
        filesystem.remove(f"/data/{lost}{ending}")
    after = opened(filesystem, seed=2)
    assert after.disk_id not in ("", before.disk_id)
    assert after.has_held(FIVE) == (lost == "disk_id")
    assert opened(filesystem, seed=3).disk_id == after.disk_id


# requirement: F6
def test_a_death_at_any_moment_leaves_no_opened_replica_unknown_to_the_same_disk() -> None:
    for changes in range(80):
        filesystem = FakeFilesystem()
        filesystem.crash_after_changes = changes
        added = ""
        try:
            registry = opened(filesystem)
            registry.add([FIVE])
            added = registry.disk_id
            registry.add([SIX])
        except PowerLost:
            pass
        else:
            return
        filesystem.lose_power(random.Random(changes))
        again = opened(filesystem, seed=2)
        assert again.has_held(FIVE) or again.disk_id != added
    raise AssertionError("it never ended")


# requirement: F6
def test_an_older_copy_becomes_another_disk_on_which_nothing_has_been_opened() -> None:
    filesystem = FakeFilesystem()
    before = opened(filesystem)
    before.add([FIVE])
    assert not before.is_older_copy(SIX)
    before.begin_again(random.Random(2))
    after = opened(filesystem, seed=3)
    assert after.disk_id not in ("", opened(FakeFilesystem()).disk_id)
    after.add([SIX])
    again = opened(filesystem, seed=4)
    assert again.disk_id == after.disk_id
    for group, is_opened in ((FIVE, False), (SIX, True)):
        assert again.has_held(group) == is_opened
        assert again.is_older_copy(group) != is_opened


# requirement: F6
def test_a_death_while_an_older_copy_begins_again_leaves_the_old_disk_or_an_older_copy() -> None:
    for changes in range(80):
        filesystem = FakeFilesystem()
        registry = opened(filesystem)
        registry.add([FIVE])
        before = registry.disk_id
        filesystem.crash_after_changes = changes
        with contextlib.suppress(PowerLost):
            registry.begin_again(random.Random(2))
            return
        filesystem.lose_power(random.Random(changes))
        again = opened(filesystem, seed=3)
        assert again.disk_id == before or again.is_older_copy(FIVE)
    raise AssertionError("it never ended")


SEVEN, EIGHT = GroupId(7), GroupId(8)
WRONG = InvariantViolated("applied 3 after 5")


def notes(filesystem: FakeFilesystem) -> BrokenGroups:
    """The notes that a start of the broker reads."""
    return BrokenGroups(filesystem, "/data", ManualWallClock())


def test_a_note_outlives_a_power_loss_and_names_the_group_and_the_error(filesystem: FakeFilesystem) -> None:
    first = notes(filesystem)
    first.note(SEVEN, WRONG)
    assert first.reasons == {}, "what is open stays open until the process has ended"
    filesystem.lose_power(random.Random(1))
    reasons = notes(filesystem).reasons
    assert list(reasons) == [SEVEN]
    assert "InvariantViolated: applied 3 after 5" in reasons[SEVEN]


@pytest.mark.parametrize("damaged", [("",), (".twin",), ("", ".twin")])
def test_a_damaged_note_counts(filesystem: FakeFilesystem, damaged: tuple[str, ...]) -> None:
    notes(filesystem).note(SEVEN, WRONG)
    for ending in damaged:
        filesystem.flip_bit(f"/data/broken/7{ending}", 20)
    reason = notes(filesystem).reasons[SEVEN]
    assert "invariant" in reason
    assert ("applied 3 after 5" in reason) == (len(damaged) == 1)


def test_what_is_forgotten_is_gone_for_good_and_nothing_else_is(filesystem: FakeFilesystem) -> None:
    for group in (SEVEN, EIGHT):
        notes(filesystem).note(group, WRONG)
    known = notes(filesystem)
    known.forget(SEVEN)
    known.forget(SEVEN)
    filesystem.lose_power(random.Random(1))
    assert list(known.reasons) == list(notes(filesystem).reasons) == [EIGHT]


def test_a_full_disk_keeps_no_process_from_ending(filesystem: FakeFilesystem) -> None:
    known = notes(filesystem)
    filesystem.capacity_bytes = 0
    known.note(SEVEN, WRONG)
    assert notes(filesystem).reasons == {}


DATA = "/data"
ONE, TWO = NodeId(1), NodeId(2)


def a_log(filesystem: FakeFilesystem) -> SegmentedLog:
    return SegmentedLog.open(filesystem, f"{DATA}/log", LogSettings(), SystemClock())


def filled(filesystem: FakeFilesystem) -> SegmentedLog:
    """Entries 0 to 4 of term 3, in which it has voted for broker 1."""
    log = a_log(filesystem)
    log.save_hard_state(HardState(Term(3), ONE))
    log.append([storage_batch(index, epoch=3) for index in range(5)])
    make_durable(log)
    return log


def note(term: int, voted_for: NodeId | None, entry_term: int, index: int) -> Progress:
    return Progress(Term(term), voted_for, EntryId(Term(entry_term), Index(index)), is_only=False)


# requirement: F6
@pytest.mark.parametrize(
    ("noted", "lost"),
    [
        (note(3, ONE, 3, 4), ""),
        (note(3, None, 3, 2), ""),
        (note(2, TWO, 0, -1), ""),
        (note(4, None, 3, 4), "knows term 3, but had term 4"),
        (note(3, TWO, 3, 4), "lacks the vote for broker 2 in term 3"),
        (note(3, ONE, 3, 5), "ends at 4, but had entry 5 of term 3"),
        (note(3, ONE, 2, 4), "ends at 4, but had entry 4 of term 2"),
    ],
)
def test_a_log_without_what_was_noted_is_an_older_copy(noted: Progress, lost: str) -> None:
    assert lost in noted.missing_in(filled(FakeFilesystem()))
    assert bool(noted.missing_in(filled(FakeFilesystem()))) == bool(lost)


def test_an_entry_that_was_deleted_since_is_not_missing() -> None:
    log = filled(FakeFilesystem())
    install(log, EntryId(Term(3), Index(9)), NOBODY, b"")
    assert note(3, ONE, 3, 4).missing_in(log) == ""
    assert note(3, ONE, 3, 9).missing_in(log) == ""
    assert "ends at 9" in note(3, ONE, 2, 9).missing_in(log)


# requirement: F6
def test_only_what_is_durable_and_committed_is_noted(filesystem: FakeFilesystem) -> None:
    log = filled(filesystem)
    log.append([storage_batch(5, epoch=3)])
    log.save_hard_state(HardState(Term(4), TWO))
    assert progress_of(log, Index(5), is_only=True) == Progress(
        Term(3), ONE, EntryId(Term(3), Index(4)), is_only=True
    )
    assert progress_of(log, Index(2), is_only=False) == note(3, ONE, 3, 2)
    make_durable(log)
    noted = progress_of(log, Index(5), is_only=False)
    assert noted == note(4, TWO, 3, 5)
    filesystem.lose_power(random.Random(1))
    assert noted.missing_in(a_log(filesystem)) == ""


def test_an_empty_log_notes_the_entry_before_it() -> None:
    log = a_log(FakeFilesystem())
    assert progress_of(log, Index(-1), is_only=False) == note(0, None, 0, -1)


# requirement: F6
def test_notes_survive_and_go_with_their_groups(filesystem: FakeFilesystem) -> None:
    filesystem.make_directories(DATA)
    progress = ReplicaProgress.open(filesystem, DATA)
    progress.keep({FIVE: note(1, None, 1, 1), SIX: note(1, None, 1, 2)}, {FIVE, SIX})
    progress.keep({FIVE: note(2, ONE, 2, 8)}, {FIVE, SIX})
    filesystem.lose_power(random.Random(1))
    again = ReplicaProgress.open(filesystem, DATA)
    assert (again.of(FIVE), again.of(SIX)) == (note(2, ONE, 2, 8), note(1, None, 1, 2))
    again.keep({}, {SIX})
    assert (again.of(FIVE), again.of(SIX)) == (None, note(1, None, 1, 2))
    assert ReplicaProgress.open(filesystem, DATA).of(FIVE) is None


def test_a_note_that_could_not_be_written_is_none(filesystem: FakeFilesystem) -> None:
    filesystem.make_directories(DATA)
    progress = ReplicaProgress.open(filesystem, DATA)
    filesystem.capacity_bytes = 0
    with pytest.raises(OSError, match="no room"):
        progress.keep({FIVE: note(1, None, 1, 1)}, {FIVE})
    assert progress.of(FIVE) is None


def test_damaged_notes_notice_nothing_and_are_written_again(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = FakeFilesystem()
    filesystem.make_directories(DATA)
    ReplicaProgress.open(filesystem, DATA).keep({FIVE: note(1, None, 1, 1)}, {FIVE})
    for ending in "", ".twin":
        filesystem.overwrite(f"{DATA}/{PROGRESS_FILE}{ending}", b"garbage")
    progress = ReplicaProgress.open(filesystem, DATA)
    assert progress.of(FIVE) is None
    assert "older copies of replicas cannot be detected" in caplog.text
    progress.keep({FIVE: note(2, None, 1, 1)}, {FIVE})
    assert ReplicaProgress.open(filesystem, DATA).of(FIVE) == note(2, None, 1, 1)


PEER = NodeId(2)


_rng = random.Random(1)


def opened_age(filesystem: FakeFilesystem, disk_id: str = "a") -> DiskAge:
    """The age of the disk, opened by a new process of the broker that has named it."""
    age = unheard_age(filesystem, disk_id)
    age.is_named = True
    if not age.is_older_copy:
        rise(age)
    return age


def unheard_age(filesystem: FakeFilesystem, disk_id: str = "a") -> DiskAge:
    """The age of the disk, opened by a new process that has not met a peer yet."""
    filesystem.make_directories("/data")
    return DiskAge.open(filesystem, "/data", disk_id, _rng)


def named(age: DiskAge) -> tuple[str, int]:
    return age.disk.disk_id, age.disk.age


def known(age: DiskAge) -> tuple[str, int]:
    """Of the disk of broker 2."""
    disk = age.known_of(PEER)
    assert disk is not None
    return disk.disk_id, disk.age


def rise(age: DiskAge) -> None:
    age.keep(age.next_record())


# requirement: F6
def test_the_age_rises_with_each_start_and_each_interval(filesystem: FakeFilesystem) -> None:
    assert named(opened_age(filesystem)) == ("a", 1)
    age = opened_age(filesystem)
    rise(age)
    assert named(age) == ("a", 3)
    filesystem.lose_power(random.Random(1))
    assert named(opened_age(filesystem)) == ("a", 4)


# requirement: F6
@pytest.mark.parametrize(
    ("said", "is_older_copy"),
    [
        (Disk("a", 4), True),
        (Disk("a", 5), False),
        (Disk("a", 6), False),
        (Disk("b", 1), False),  # another disk
        (Disk("z", 900), True),  # the one before
    ],
)
def test_a_disk_that_is_younger_than_before_or_was_replaced_is_an_older_copy(
    filesystem: FakeFilesystem, said: Disk, is_older_copy: bool
) -> None:
    age = opened_age(filesystem)
    assert age.note(PEER, Disk("z", 7))
    assert age.note(PEER, Disk("a", 5))
    rise(age)
    for each in (age, opened_age(filesystem)):  # also after a restart
        assert each.note(PEER, said) is not is_older_copy
        assert known(each) == (("a", 5) if is_older_copy else (said.disk_id, said.age))


def test_the_disks_of_a_peer_are_bounded() -> None:
    age = opened_age(FakeFilesystem())
    for number in range(DISKS_MAX + 1):
        assert age.note(PEER, Disk(f"{number}", 1))
    assert not age.note(PEER, Disk("1", 5))
    assert age.note(PEER, Disk("0", 5))  # forgotten


# requirement: F6
def test_an_older_copy_stays_one_until_it_begins_again(filesystem: FakeFilesystem) -> None:
    age = opened_age(filesystem)
    age.note(PEER, Disk("b", 8))
    age.mark_older_copy()
    for disk_id in ("a", "another id, since the registry is lost, too"):
        again = opened_age(filesystem, disk_id)
        assert again.is_older_copy
    again.begin_again("c")
    assert not again.is_older_copy
    last = opened_age(filesystem, "c")
    assert (last.is_older_copy, named(last), known(last)) == (False, ("c", 1), ("b", 8))


# requirement: F6
def test_another_disk_has_an_age_of_its_own_and_remembers_the_peers(filesystem: FakeFilesystem) -> None:
    age = opened_age(filesystem)
    age.note(PEER, Disk("b", 8))
    rise(age)
    other = opened_age(filesystem, "c")
    assert (named(other), known(other)) == (("c", 1), ("b", 8))


# requirement: F6
def test_an_age_that_is_told_never_falls_wherever_the_power_goes() -> None:
    for changes in range(40):
        filesystem = FakeFilesystem()
        age = opened_age(filesystem)
        filesystem.crash_after_changes = changes
        told = age.disk.age
        try:
            for _ in range(3):
                rise(age)
                told = age.disk.age
        except PowerLost:
            pass
        filesystem.lose_power(random.Random(changes))
        assert opened_age(filesystem).disk.age > told


# requirement: F6
def test_a_full_disk_ages_no_more_and_its_broker_starts(filesystem: FakeFilesystem) -> None:
    age, peer = opened_age(filesystem), opened_age(FakeFilesystem())
    rise(age)
    assert peer.note(PEER, age.disk)
    filesystem.capacity_bytes = filesystem.used_bytes
    full = unheard_age(filesystem)
    full.is_named = True
    with pytest.raises(OSError, match="no room"):
        rise(full)
    assert named(full) == ("a", 2)
    assert peer.note(PEER, full.disk)
    filesystem.capacity_bytes = None
    rise(full)
    assert named(full) == ("a", 3)
    assert peer.note(PEER, full.disk)


# requirement: F6
def test_without_its_file_a_disk_passes_for_an_older_copy(filesystem: FakeFilesystem) -> None:
    age = opened_age(filesystem)
    rise(age)
    peer = opened_age(FakeFilesystem(), "b")
    peer.note(PEER, age.disk)
    for ending in ("", ".twin"):
        filesystem.remove(f"/data/disk_age{ending}")
    assert not peer.note(PEER, opened_age(filesystem).disk)


# requirement: F6
def test_an_older_copy_that_has_aged_alone_is_one_still() -> None:
    filesystem, peer = FakeFilesystem(), opened_age(FakeFilesystem(), "b")
    age = opened_age(filesystem)
    copied = filesystem.image()
    rise(age)
    assert peer.note(PEER, age.disk)
    older = FakeFilesystem()
    older.load(copied)
    restored = opened_age(older)
    for _ in range(5):
        assert not peer.note(PEER, restored.disk)
        rise(restored)
    assert known(peer) == ("a", 2)


# requirement: F6
def test_restarts_change_the_run_and_not_the_disk() -> None:
    filesystem, peer = FakeFilesystem(), opened_age(FakeFilesystem(), "b")
    for _ in range(RUNS_MAX + 2):
        age = opened_age(filesystem)
        rise(age)
        assert peer.note(PEER, age.disk)
    assert len(age.disk.runs) == RUNS_MAX
    assert not age.disk.continues(Disk("a", age.disk.age, (Run(1, 5),)))


# requirement: F6
def test_starts_that_no_peer_has_heard_prove_nothing() -> None:
    """An older copy that cannot start is started again by its service manager, however often."""
    filesystem, peer = FakeFilesystem(), opened_age(FakeFilesystem(), "b")
    age = opened_age(filesystem)
    copied = filesystem.image()
    rise(age)
    assert peer.note(PEER, age.disk)
    older = FakeFilesystem()
    older.load(copied)
    for copy, is_older in ((older, True), (filesystem, False)):
        for _ in range(RUNS_MAX + 1):
            rise(unheard_age(copy))  # it notes what it has heard of its peers
        assert peer.note(PEER, opened_age(copy).disk) is not is_older


# requirement: F6
def test_an_older_copy_whose_runs_no_longer_reach_back_is_one_still() -> None:
    filesystem, peer, other = (FakeFilesystem(), *(opened_age(FakeFilesystem(), each) for each in "bc"))
    age = opened_age(filesystem)
    copied = filesystem.image()
    rise(age)
    assert peer.note(PEER, age.disk)
    older = FakeFilesystem()
    older.load(copied)
    for _ in range(RUNS_MAX + 1):
        restarted = opened_age(older)
        assert other.note(PEER, restarted.disk)  # which did not know the disk itself
        assert not peer.note(PEER, restarted.disk)
    assert len(restarted.disk.runs) == RUNS_MAX


# requirement: F6
def test_a_disk_that_has_started_often_is_itself_to_a_peer_that_was_down() -> None:
    filesystem, peer = FakeFilesystem(), opened_age(FakeFilesystem(), "b")
    assert peer.note(PEER, opened_age(filesystem).disk)
    for _ in range(RUNS_MAX - 1):
        restarted = opened_age(filesystem)
    assert peer.note(PEER, restarted.disk)
