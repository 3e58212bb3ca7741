"""What is wrong with a plan is named with its member, its partition and the remedy."""

from __future__ import annotations

import pytest

from raftlog.assignors import ASSIGNORS, assignor, problem_of
from raftlog.types import TopicPartition
from tests.helpers.group_plans import partitions, subscribed

MEMBERS = {"A": subscribed("t0"), "B": subscribed("t0 t1"), "C": subscribed("t1 gone")}
COUNTS = {"t0": 2, "t1": 1, "empty": 0}
GOOD = {"A": "t0/0", "B": "t0/1", "C": "t1/0"}


def problem(may_withhold: bool = False, **rows: str) -> str | None:
    """Of a plan with these rows in place of good ones."""
    plan = {member: partitions(row) for member, row in {**GOOD, **rows}.items()}
    return problem_of(plan, MEMBERS, COUNTS, may_withhold=may_withhold)


def test_a_good_plan_has_no_problem() -> None:
    assert problem() is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"B": "t0/0 t0/1"},
            "the plan gives t0/0 to members 'A' and 'B'; give each partition to one member, once",
        ),
        (
            {"D": "t0/0"},
            "the plan has a row for member 'D', which is not in the group; "
            "plan for the members of this generation only",
        ),
        (
            {"B": "t0/1 t0/2"},
            "the plan gives t0/2 to member 'B', but topic 't0' has the partitions 0 to 1; "
            "read the partition counts again and plan for these",
        ),
        (
            {"C": "t1/0 gone/0"},
            "the plan gives gone/0 to member 'C', but there is no topic 'gone'; "
            "read the topics again and plan without it",
        ),
        (
            {"A": "t0/0 t1/0", "C": ""},
            "the plan gives t1/0 to member 'A', but it does not subscribe topic 't1'; "
            "give it to a member that does",
        ),
        (
            {"B": ""},
            "the plan gives t0/1 to no member; give it to a subscriber of topic 't0', such as member 'A'",
        ),
    ],
    ids=["twice", "not a member", "no partition", "no topic", "not subscribed", "nobody"],
)
def test_a_problem_is_named_with_its_remedy(rows: dict[str, str], message: str) -> None:
    assert problem(**rows) == message


def test_a_partition_twice_in_one_row_is_a_problem() -> None:
    twice = [TopicPartition("t0", 0)] * 2
    assert problem_of({"A": twice}, {"A": subscribed("t0")}, {"t0": 1}) == (
        "the plan gives t0/0 to member 'A' twice; give each partition to one member, once"
    )


def test_a_negative_partition_does_not_exist() -> None:
    found = problem_of({"A": [TopicPartition("t0", -1)]}, {"A": subscribed("t0")}, {"t0": 1})
    assert found is not None
    assert "t0/-1" in found


def test_a_topic_without_partitions_has_none_to_give() -> None:
    members = {"A": subscribed("empty")}
    assert problem_of({}, members, COUNTS) is None
    assert problem_of({"A": partitions("empty/0")}, members, COUNTS) == (
        "the plan gives empty/0 to member 'A', but topic 'empty' has no partitions; "
        "read the partition counts again and plan for these"
    )


def test_a_member_without_a_row_gets_nothing() -> None:
    # requirement: G5
    assert problem_of({"B": partitions("t0/0 t0/1 t1/0")}, MEMBERS, COUNTS) is None


def test_a_plan_that_may_withhold_still_needs_every_other_rule() -> None:
    assert problem(may_withhold=True, B="") is None
    assert problem(may_withhold=True, B="t0/0") is not None


@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_plans_of_our_own_assignors_have_no_problem(name: str) -> None:
    assert problem_of(assignor(name).assign(MEMBERS, COUNTS), MEMBERS, COUNTS) is None
