"""What a coordinator counts for its metrics."""

from __future__ import annotations

import pytest

from groups.requests import DeleteGroup, Done
from groups.tally import OTHER, Tally, kind_of
from tests.helpers.group_coordination import SESSION_MS, CoordinatedGroups


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4})


def plan_again(groups: CoordinatedGroups, member: str) -> None:
    """The member, alone, completes the rebalance that is under way."""
    groups.join(member, generation=groups.committed.groups["g"].generation)
    groups.sync(member, groups.committed.groups["g"].generation, is_auto=True)


def counted(groups: CoordinatedGroups) -> dict[str, int]:
    return dict(groups.tally.rebalances["g"])


def test_rebalances_are_counted_by_their_reason(groups: CoordinatedGroups) -> None:
    groups.stable("a", "b")
    assert counted(groups) == {"joined": 1}  # the plan of a alone was never made
    groups.leave("b")
    plan_again(groups, "a")
    groups.set_partitions("orders", 5)
    plan_again(groups, "a")
    plan_again(groups, "a")
    groups.join("a", "orders", "payments", generation=groups.committed.groups["g"].generation)
    groups.sync("a", groups.committed.groups["g"].generation, is_auto=True)
    assert counted(groups) == {"joined": 1, "left": 1, "partitions": 1, "requested": 1, "subscription": 1}


def test_members_that_time_removes_are_counted(groups: CoordinatedGroups) -> None:
    groups.stable("a", "b")
    groups.after(SESSION_MS + 1)
    assert groups.tally.members_expired == 2


def test_a_member_that_leaves_has_not_expired(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.leave("a")
    assert groups.tally.members_expired == 0


def test_each_committed_offset_counts_and_a_late_one_does_not(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.commit(Done, 9, member="a", generation=generation)
    groups.commit(Done, 5, member="a", generation=generation)
    groups.commit(Done, 7, group="other")
    assert groups.tally.offsets_committed == 2


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("member a left", "left"),
        ("member a left joined", "joined"),
        ("member a\nb joined", "joined"),
        ("leader a sent no plan", "no_plan"),
        ("the session of member a expired", "expired"),
        ("member a took the place of b", "replaced"),
        ("topic orders was created again", "created_again"),
        ("withheld partitions were not revoked", "withheld"),
        ("the coordinator changed", "coordinator"),
        ("something new", OTHER),
    ],
)
def test_kinds_of_reasons(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_a_deleted_group_has_no_counters(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.leave("a")
    groups.ask(DeleteGroup(group="g"), Done)
    assert groups.tally == Tally()
