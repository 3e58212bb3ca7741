"""Joins and syncs that wait: copies that arrive late, and members that are alive meanwhile."""

from __future__ import annotations

import pytest

from groups.requests import Beat, Joined, Sync, Synced
from raftlog.errors import InvalidRequest, RebalanceInProgress, UnknownMember
from raftlog.hosting.decisions import RequestId
from tests.helpers.group_coordination import REBALANCE_MS, SESSION_MS, CoordinatedGroups


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


def test_a_static_member_is_not_refused_for_its_own_join_that_waits(groups: CoordinatedGroups) -> None:
    """It has restarted with another strategy, and under another member id, before b joins again."""
    offered = ("range", "sticky")
    groups.join("b", strategies=offered)
    first = groups.join("a-1", instance="a", strategies=("range",))
    refused = groups.join("c", instance="c", strategies=("sticky",))
    assert "have in common: range" in str(groups.answered(refused, InvalidRequest))
    again = groups.join("a-2", instance="a", strategies=("sticky",))
    groups.answered(first, UnknownMember)
    groups.join("b", strategies=offered, generation=1)
    assert groups.answered(again, Joined).strategy == "sticky"


def parked(groups: CoordinatedGroups) -> RequestId:
    """The sync of b, which waits for the plan of a; a has a long session, and time for its plan."""
    groups.answered(groups.join("a", session_ms=2 * REBALANCE_MS), Joined)
    groups.join("b")
    joined = groups.join("a", session_ms=2 * REBALANCE_MS, generation=1)
    assert groups.answered(joined, Joined).leader == "a"
    return groups.sync("b", 2)


# requirement: G10 G13
def test_a_member_that_waits_for_the_plan_is_alive(groups: CoordinatedGroups) -> None:
    waiting = parked(groups)
    groups.after(3 * SESSION_MS - 1)
    groups.answered(groups.sync("a", 2, is_auto=True), Synced)
    groups.answered(waiting, Synced)
    groups.after(SESSION_MS - 1)
    assert not groups.must_rejoin("b", 2), "its session begins with the plan"
    groups.after(SESSION_MS)
    groups.beat("b", 2, UnknownMember)


# requirement: G10
def test_a_member_that_waited_in_vain_has_a_whole_session_to_join_again(groups: CoordinatedGroups) -> None:
    waiting = parked(groups)
    groups.after(2 * SESSION_MS - 1)
    groups.join("c")
    groups.answered(waiting, RebalanceInProgress)
    groups.after(SESSION_MS - 1)
    assert groups.beat("b", 2, Beat).must_rejoin


# requirement: G10
def test_a_member_that_went_away_while_it_waited_for_the_plan_is_dead(groups: CoordinatedGroups) -> None:
    waiting = parked(groups)
    groups.after(2 * SESSION_MS - 1)
    groups.forget(waiting, Sync(group="g", member_id="b", generation=2))
    groups.after(SESSION_MS)
    assert set(groups.committed.groups["g"].members) == {"a"}
    assert groups.must_rejoin("a", 2)


# requirement: G10 ST2
def test_a_member_that_waited_for_the_plan_repeats_its_sync_at_the_next_coordinator(
    groups: CoordinatedGroups,
) -> None:
    parked(groups)
    groups.after(2 * SESSION_MS)
    groups.fail_over()
    groups.after(SESSION_MS - 1)
    waiting = groups.sync("b", 2)
    groups.after(2 * SESSION_MS)
    groups.answered(groups.sync("a", 2, is_auto=True), Synced)
    groups.answered(waiting, Synced)
