"""Notes of broken groups: durable, kept twice, and gone when the replica's files are."""

from __future__ import annotations

import random

import pytest

from raftlog.errors import InvariantViolated
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId
from tests.helpers.manual_wall_clock import ManualWallClock

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
