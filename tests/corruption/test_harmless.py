"""Damage counts as harmless only where the disk shows it."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import pytest

from raftlog.storage.slots import SLOT_NAMES, Slot, read_slot
from raftlog.testing.fake_filesystem import FakeFilesystem
from verification.corruption.cluster import Filled, Image, fill
from verification.corruption.damage import CATEGORIES, KEPT_TWICE, KINDS, do_damage
from verification.corruption.harmless import Disk, shown_harmless

MAY_BE_MISSING = {"index", "epochs", "checkpoint", "metadata checkpoint", "members"}
KEPT_IN_BOTH_SLOTS = {"bit flip", "stale older copy", "swapped files"}
FILLING = 1  # ends with an orderly stop, so that everything was promised; goes back to its first entry


@functools.cache
def filled_disks() -> Filled:
    return fill(FILLING)


def damaged(category: str, kind: str, number: int = 0) -> Disk | None:
    """A disk that was damaged, and on which nobody has done anything since."""
    filled = filled_disks()
    node = min(filled.images)
    disk = FakeFilesystem()
    disk.load(filled.images[node])
    if do_damage(disk, filled.older[node], random.Random(number), category, kind) is None:
        return None
    return Disk(filled.images[node], disk.image(), disk.image(), filled.older[node])


# requirement: M3
@pytest.mark.parametrize("category", CATEGORIES)
def test_damage_that_stays_is_harmless_only_where_the_bytes_count_for_nothing(category: str) -> None:
    for kind in KINDS:
        for number in range(3):
            disk = damaged(category, kind, number)
            if disk is None:
                continue
            reason = shown_harmless(disk)
            if kind == "missing file" and category in MAY_BE_MISSING:
                assert reason is not None, (kind, number)
            elif reason is not None:
                is_slot = category.endswith("hard state") and kind in KEPT_IN_BOTH_SLOTS
                is_older = category.endswith(("epochs", "checkpoint", "index")) and kind == "stale older copy"
                assert is_slot or is_older, (kind, number, reason)


def test_what_is_back_as_it_was_is_harmless() -> None:
    disk = damaged("closed segment", "bit flip")
    assert disk is not None
    assert shown_harmless(disk) is None
    back = Disk(disk.before, disk.after, disk.before, disk.older)
    assert shown_harmless(back) == "it was written again with its old content"


def slot_paths(image: Image) -> list[str]:
    folder = next(path.rpartition("/")[0] for path in sorted(image) if "/orders-" in path)
    return [f"{folder}/{name}" for name in SLOT_NAMES]


def sequence(image: Image, path: str) -> int:
    files = FakeFilesystem()
    files.load(image)
    slot = read_slot(files, path)
    assert isinstance(slot, Slot)
    return slot.sequence


@pytest.mark.parametrize(("pick", "is_harmless"), [(min, True), (max, False)], ids=["older", "newest"])
def test_a_lost_slot_is_harmless_when_the_one_that_is_left_says_the_same(
    pick: Callable[..., str], is_harmless: bool
) -> None:
    """The older slot is made to know an earlier term, as before the second write of a vote."""
    filled = filled_disks()
    node = min(filled.images)
    before, older = dict(filled.images[node]), filled.older[node]
    first, second = sorted(slot_paths(before), key=lambda path: sequence(before, path))
    before[first] = older[max(slot_paths(older), key=lambda path: sequence(older, path))]
    lost = pick(slot_paths(before), key=lambda path: sequence(before, path))
    after = {path: data for path, data in before.items() if path != lost}
    rewritten = {**after, lost: after[first if lost == second else second]}
    assert (shown_harmless(Disk(before, after, rewritten, older)) is not None) == is_harmless


def test_what_is_kept_twice_is_never_harmless_by_itself() -> None:
    assert KEPT_TWICE
    for category in ("applied metadata", "disk id"):
        disk = damaged(category, "missing file")
        assert disk is not None
        assert shown_harmless(disk) is None
