"""A partition that was decommissioned and removed: the group rebalances, and its offsets go."""

from __future__ import annotations

import pytest

from groups.requests import Done, Joined, Synced
from tests.helpers.group_coordination import CoordinatedGroups


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 3})


def rejoined(groups: CoordinatedGroups, generation: int) -> Synced:
    assert groups.must_rejoin("a", generation)
    joined = groups.answered(groups.join("a", generation=generation), Joined)
    return groups.answered(groups.sync("a", joined.generation, is_auto=True), Synced)


def committed(groups: CoordinatedGroups, generation: int, *partitions: int, offset: int = 7) -> None:
    for partition in partitions:
        groups.commit(Done, offset, partition=partition, member="a", generation=generation)


# requirement: F5 G11
def test_the_group_rebalances_over_the_partitions_that_are_left(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.remove_partition("orders", "t1", 1_050)
    assert rejoined(groups, generation).assignment == {"orders": (0, 1)}
    assert [groups.offset(partition) for partition in range(3)] == [7, 7, None]


# requirement: F5 F4 G11
def test_a_later_partition_of_the_number_is_read_from_its_start(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.remove_partition("orders", "t1", 1_050)
    generation = rejoined(groups, generation).generation
    groups.set_partitions("orders", 3)
    synced = rejoined(groups, generation)
    assert synced.assignment == {"orders": (0, 1, 2)}
    assert groups.offset(2) == 1_050


# requirement: F5 F4
def test_a_coordinator_that_has_seen_neither_reads_the_later_partition_from_its_start(
    groups: CoordinatedGroups,
) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.beginnings["t1", 2] = 1_050
    groups.counts["orders"] = 2
    generation = generation_after(groups, generation)
    groups.commit(Done, 7, partition=2, member="", generation=-1, is_forced=True)
    groups.counts["orders"] = 3
    generation_after(groups, generation)
    assert groups.offset(2) == 1_050


def generation_after(groups: CoordinatedGroups, generation: int) -> int:
    """The members join again at a coordinator that has failed over."""
    groups.fail_over()
    joined = groups.answered(groups.join("a", generation=generation), Joined)
    groups.answered(groups.sync("a", joined.generation, is_auto=True), Synced)
    return joined.generation


# requirement: F5 ST2
def test_a_coordinator_with_old_metadata_keeps_offsets_of_a_later_partition(
    groups: CoordinatedGroups,
) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1)
    committed(groups, generation, 2, offset=1_051)
    groups.remove_partition("orders", "t1", 1_050)
    assert groups.offset(2) == 1_051, "it was committed for the later partition, which is not known here yet"


# requirement: F5
def test_offsets_of_another_topic_of_the_name_stay(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.topic_ids["orders"] = "t2"
    generation = generation_after(groups, generation)
    groups.commit(Done, 7, partition=2, member="a", generation=generation, topic_id="t2")
    groups.remove_partition("orders", "t1", 1_050)
    assert groups.offset(2) == 7


# requirement: F5
def test_a_new_coordinator_drops_offsets_that_the_one_before_has_left(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.beginnings["t1", 2] = 1_050
    groups.counts["orders"] = 2
    groups.fail_over()
    groups.join("a", generation=generation)
    assert groups.offset(2) is None
