"""Joins and syncs that wait: copies that arrive late, and members that are alive meanwhile."""

from __future__ import annotations

import pytest

from groups.requests import Joined, Synced
from raftlog.errors import RebalanceInProgress
from tests.helpers.group_coordination import CoordinatedGroups


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4, "payments": 2})


def given(groups: CoordinatedGroups, topic: str) -> list[int]:
    """The partitions of a topic that the plan gives to somebody."""
    members = groups.committed.groups["g"].members.values()
    return sorted(number for member in members for number in member.assignment.get(topic, ()))


# requirement: G8 G13
@pytest.mark.parametrize("late", [-1, 1])
def test_a_late_copy_of_an_earlier_join_does_not_take_a_subscription_back(
    groups: CoordinatedGroups, late: int
) -> None:
    generation = groups.stable("a", "b")
    real = groups.join("a", "orders", "payments", generation=generation)
    groups.join("a", "orders", generation=late)  # sent before, and delayed
    groups.join("b", generation=generation)
    groups.answered(real, RebalanceInProgress)
    real = groups.join("a", "orders", "payments", generation=generation)  # repeated as it was
    groups.join("b", generation=generation + 1)
    assert groups.answered(real, Joined).generation == generation + 2
    leader = groups.committed.groups["g"].leader
    groups.answered(groups.sync(leader, generation + 2, is_auto=True), Synced)
    assert given(groups, "payments") == [0, 1]


# requirement: G8
def test_the_newest_of_two_joins_that_wait_counts(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    late = groups.join("a", "orders", generation=generation)
    real = groups.join("a", "orders", "payments", generation=generation)
    groups.join("b", generation=generation)
    groups.answered(late, RebalanceInProgress)
    assert groups.answered(real, Joined).generation == generation + 1
