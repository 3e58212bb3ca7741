"""The age of a disk: what is an older copy, and what of it survives crashes and full disks."""

from __future__ import annotations

import random

import pytest

from raftlog.storage.disk_age import DISKS_MAX, Disk, DiskAge
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import NodeId

TWO = NodeId(2)


def opened(filesystem: FakeFilesystem, disk_id: str = "a") -> DiskAge:
    filesystem.make_directories("/data")
    return DiskAge.open(filesystem, "/data", disk_id)


def rise(age: DiskAge) -> None:
    age.keep(age.older())


# requirement: F6
def test_the_age_rises_with_each_start_and_each_interval() -> None:
    filesystem = FakeFilesystem()
    assert opened(filesystem).disk == Disk("a", 1)
    age = opened(filesystem)
    rise(age)
    assert age.disk == Disk("a", 3)
    filesystem.lose_power(random.Random(1))
    assert opened(filesystem).disk == Disk("a", 4)


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
    said: Disk, is_older_copy: bool
) -> None:
    filesystem = FakeFilesystem()
    age = opened(filesystem)
    assert age.note(TWO, Disk("z", 7))
    assert age.note(TWO, Disk("a", 5))
    rise(age)
    for each in (age, opened(filesystem)):  # also after a restart
        assert each.note(TWO, said) is not is_older_copy
        assert each.known_of(TWO) == (Disk("a", 5) if is_older_copy else said)


def test_the_disks_of_a_peer_are_bounded() -> None:
    age = opened(FakeFilesystem())
    for number in range(DISKS_MAX + 1):
        assert age.note(TWO, Disk(f"{number}", 1))
    assert not age.note(TWO, Disk("1", 5))
    assert age.note(TWO, Disk("0", 5))  # forgotten


# requirement: F6
def test_an_older_copy_stays_one_until_it_begins_again() -> None:
    filesystem = FakeFilesystem()
    age = opened(filesystem)
    age.note(TWO, Disk("b", 8))
    age.condemn()
    for disk_id in ("a", "another id, since the registry is lost, too"):
        again = opened(filesystem, disk_id)
        assert again.is_older_copy
    again.begin_again("c")
    assert not again.is_older_copy
    last = opened(filesystem, "c")
    assert (last.is_older_copy, last.disk, last.known_of(TWO)) == (False, Disk("c", 2), Disk("b", 8))


# requirement: F6
def test_another_disk_has_an_age_of_its_own_and_remembers_the_peers() -> None:
    filesystem = FakeFilesystem()
    age = opened(filesystem)
    age.note(TWO, Disk("b", 8))
    rise(age)
    other = opened(filesystem, "c")
    assert (other.disk, other.known_of(TWO)) == (Disk("c", 1), Disk("b", 8))


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
def test_a_full_disk_ages_no_more_and_its_broker_starts() -> None:
    filesystem = FakeFilesystem()
    rise(opened(filesystem))
    filesystem.capacity_bytes = filesystem.used_bytes
    assert opened(filesystem).disk == Disk("a", 2)
    filesystem.capacity_bytes = None
    assert opened(filesystem).disk == Disk("a", 3)


# requirement: F6
def test_without_its_file_a_disk_passes_for_an_older_copy() -> None:
    filesystem = FakeFilesystem()
    age = opened(filesystem)
    rise(age)
    peer = opened(FakeFilesystem(), "b")
    peer.note(TWO, age.disk)
    for ending in ("", ".twin"):
        filesystem.remove(f"/data/disk_age{ending}")
    assert not peer.note(TWO, opened(filesystem).disk)
