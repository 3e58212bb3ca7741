"""What a disk remembers of its replicas and of broken groups, also when files are lost."""

from __future__ import annotations

import contextlib
import random

import pytest

from raftlog.errors import InvariantViolated
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import METADATA_GROUP, GroupId
from tests.helpers.manual_wall_clock import ManualWallClock

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
    """As a start of the broker reads them."""
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
