"""The age of a disk: what is an older copy, and what of it survives crashes and full disks."""

from __future__ import annotations

import random

import pytest

from raftlog.storage.disk_age import DISKS_MAX, RUNS_MAX, Disk, DiskAge, Run
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import NodeId

TWO = NodeId(2)


_rng = random.Random(1)


def opened(filesystem: FakeFilesystem, disk_id: str = "a") -> DiskAge:
    """As a new process of the broker opens it."""
    filesystem.make_directories("/data")
    return DiskAge.open(filesystem, "/data", disk_id, _rng)


def named(age: DiskAge) -> tuple[str, int]:
    return age.disk.disk_id, age.disk.age


def known(age: DiskAge) -> tuple[str, int]:
    """Of the disk of broker 2."""
    disk = age.known_of(TWO)
    assert disk is not None
    return disk.disk_id, disk.age


def rise(age: DiskAge) -> None:
    age.keep(age.next_record())


# requirement: F6
def test_the_age_rises_with_each_start_and_each_interval(filesystem: FakeFilesystem) -> None:
    assert named(opened(filesystem)) == ("a", 1)
    age = opened(filesystem)
    rise(age)
    assert named(age) == ("a", 3)
    filesystem.lose_power(random.Random(1))
    assert named(opened(filesystem)) == ("a", 4)


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
    age = opened(filesystem)
    assert age.note(TWO, Disk("z", 7))
    assert age.note(TWO, Disk("a", 5))
    rise(age)
    for each in (age, opened(filesystem)):  # also after a restart
        assert each.note(TWO, said) is not is_older_copy
        assert known(each) == (("a", 5) if is_older_copy else (said.disk_id, said.age))


def test_the_disks_of_a_peer_are_bounded() -> None:
    age = opened(FakeFilesystem())
    for number in range(DISKS_MAX + 1):
        assert age.note(TWO, Disk(f"{number}", 1))
    assert not age.note(TWO, Disk("1", 5))
    assert age.note(TWO, Disk("0", 5))  # forgotten


# requirement: F6
def test_an_older_copy_stays_one_until_it_begins_again(filesystem: FakeFilesystem) -> None:
    age = opened(filesystem)
    age.note(TWO, Disk("b", 8))
    age.mark_older_copy()
    for disk_id in ("a", "another id, since the registry is lost, too"):
        again = opened(filesystem, disk_id)
        assert again.is_older_copy
    again.begin_again("c")
    assert not again.is_older_copy
    last = opened(filesystem, "c")
    assert (last.is_older_copy, named(last), known(last)) == (False, ("c", 2), ("b", 8))


# requirement: F6
def test_another_disk_has_an_age_of_its_own_and_remembers_the_peers(filesystem: FakeFilesystem) -> None:
    age = opened(filesystem)
    age.note(TWO, Disk("b", 8))
    rise(age)
    other = opened(filesystem, "c")
    assert (named(other), known(other)) == (("c", 1), ("b", 8))


# requirement: F6
def test_an_age_that_is_told_never_falls_wherever_the_power_goes() -> None:
    for changes in range(40):
        filesystem = FakeFilesystem()
        age = opened(filesystem)
        filesystem.crash_after_changes = changes
        told = age.disk.age
        try:
            for _ in range(3):
                rise(age)
                told = age.disk.age
        except PowerLost:
            pass
        filesystem.lose_power(random.Random(changes))
        assert opened(filesystem).disk.age > told


# requirement: F6
def test_a_full_disk_ages_no_more_and_its_broker_starts(filesystem: FakeFilesystem) -> None:
    age, peer = opened(filesystem), opened(FakeFilesystem())
    rise(age)
    assert peer.note(TWO, age.disk)
    filesystem.capacity_bytes = filesystem.used_bytes
    full = opened(filesystem)
    assert named(full) == ("a", 2)
    filesystem.capacity_bytes = None
    rise(full)
    assert named(full) == ("a", 3)
    assert peer.note(TWO, full.disk)


# requirement: F6
def test_without_its_file_a_disk_passes_for_an_older_copy(filesystem: FakeFilesystem) -> None:
    age = opened(filesystem)
    rise(age)
    peer = opened(FakeFilesystem(), "b")
    peer.note(TWO, age.disk)
    for ending in ("", ".twin"):
        filesystem.remove(f"/data/disk_age{ending}")
    assert not peer.note(TWO, opened(filesystem).disk)


# requirement: F6
def test_an_older_copy_that_has_aged_alone_is_one_still() -> None:
    filesystem, peer = FakeFilesystem(), opened(FakeFilesystem(), "b")
    age = opened(filesystem)
    copied = filesystem.image()
    rise(age)
    assert peer.note(TWO, age.disk)
    older = FakeFilesystem()
    older.load(copied)
    restored = opened(older)
    for _ in range(5):
        assert not peer.note(TWO, restored.disk)
        rise(restored)
    assert known(peer) == ("a", 2)


# requirement: F6
def test_restarts_change_the_run_and_not_the_disk() -> None:
    filesystem, peer = FakeFilesystem(), opened(FakeFilesystem(), "b")
    for _ in range(RUNS_MAX + 2):
        age = opened(filesystem)
        rise(age)
        assert peer.note(TWO, age.disk)
    assert len(age.disk.runs) == RUNS_MAX
    known_long_ago = Disk("a", 2, (Run(1, 5),))
    assert age.disk.continues(known_long_ago)
    assert not age.disk.continues(Disk("a", age.disk.age, (Run(1, 5),)))
