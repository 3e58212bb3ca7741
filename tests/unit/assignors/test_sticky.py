"""``sticky``: even first, then with as few moves as possible."""

from __future__ import annotations

import pytest

from raftlog.assignors import assignor
from raftlog.assignors.ownership import owners
from raftlog.types import TopicPartition
from tests.helpers.group_plans import rejoined, subscribed, texts

STICKY = assignor("sticky")
PARTITION = TopicPartition("t0", 0)


def test_the_example_of_kafka_with_equal_subscriptions() -> None:
    counts = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
    members = {name: subscribed("t0 t1 t2 t3") for name in ("C0", "C1", "C2")}
    plan = STICKY.assign(members, counts)
    assert texts(plan) == {"C0": "t0/0 t1/1 t3/0", "C1": "t0/1 t2/0 t3/1", "C2": "t1/0 t2/1"}
    left = rejoined(members, plan)
    del left["C1"]
    assert texts(STICKY.assign(left, counts)) == {
        "C0": "t0/0 t1/1 t2/0 t3/0",
        "C2": "t0/1 t1/0 t2/1 t3/1",
    }


def test_the_example_of_kafka_with_different_subscriptions() -> None:
    counts = {"t0": 1, "t1": 2, "t2": 3}
    members = {"C0": subscribed("t0"), "C1": subscribed("t0 t1"), "C2": subscribed("t0 t1 t2")}
    plan = STICKY.assign(members, counts)
    assert texts(plan) == {"C0": "t0/0", "C1": "t1/0 t1/1", "C2": "t2/0 t2/1 t2/2"}
    left = rejoined(members, plan)
    del left["C0"]
    assert texts(STICKY.assign(left, counts)) == {"C1": "t0/0 t1/0 t1/1", "C2": "t2/0 t2/1 t2/2"}


def test_nothing_moves_when_nothing_changes() -> None:
    members = {
        "A": subscribed("t0", "t0/1 t0/4"),
        "B": subscribed("t0", "t0/0 t0/3"),
        "C": subscribed("t0", "t0/2"),
    }
    assert texts(STICKY.assign(members, {"t0": 5})) == {"A": "t0/1 t0/4", "B": "t0/0 t0/3", "C": "t0/2"}


def test_a_new_member_gets_its_part_from_the_fullest() -> None:
    # requirement: G8
    members = {
        "A": subscribed("t0", "t0/0 t0/1 t0/2 t0/3"),
        "B": subscribed("t0", "t0/4 t0/5"),
        "C": subscribed("t0"),
    }
    assert texts(STICKY.assign(members, {"t0": 6})) == {"A": "t0/0 t0/1", "B": "t0/4 t0/5", "C": "t0/2 t0/3"}


def test_the_member_that_owned_one_more_keeps_it() -> None:
    members = {"A": subscribed("t0"), "B": subscribed("t0", "t0/0 t0/1 t0/2")}
    assert texts(STICKY.assign(members, {"t0": 3})) == {"A": "t0/2", "B": "t0/0 t0/1"}


def test_new_partitions_go_to_those_that_have_least() -> None:
    # requirement: G11, F4
    members = {"A": subscribed("t0", "t0/0 t0/1"), "B": subscribed("t0", "t0/2")}
    assert texts(STICKY.assign(members, {"t0": 4})) == {"A": "t0/0 t0/1", "B": "t0/2 t0/3"}


def test_partitions_that_are_gone_are_dropped() -> None:
    members = {
        "A": subscribed("t0 gone", "t0/0 t0/3 gone/0"),
        "B": subscribed("t0", "t0/1"),
    }
    assert texts(STICKY.assign(members, {"t0": 2})) == {"A": "t0/0", "B": "t0/1"}


def test_a_member_loses_the_topic_that_it_no_longer_subscribes() -> None:
    members = {"A": subscribed("t1", "t0/0 t0/1 t1/0"), "B": subscribed("t0 t1", "t1/1")}
    assert texts(STICKY.assign(members, {"t0": 2, "t1": 2})) == {"A": "t1/0 t1/1", "B": "t0/0 t0/1"}


def test_a_chain_of_moves_makes_the_plan_even() -> None:
    """C can read t1 only, which A cannot: B takes one of A's and gives one to C."""
    members = {
        "A": subscribed("t0", "t0/0 t0/1 t0/2"),
        "B": subscribed("t0 t1", "t1/0 t1/1"),
        "C": subscribed("t1", "t1/2"),
    }
    plan = STICKY.assign(members, {"t0": 3, "t1": 3})
    assert texts(plan) == {"A": "t0/0 t0/1", "B": "t0/2 t1/0", "C": "t1/1 t1/2"}


def test_a_member_with_another_choice_leaves_the_partitions_of_an_owner() -> None:
    """A could have one of B's as its first partition, and gives it back for t1/0."""
    members = {"A": subscribed("t0 t1"), "B": subscribed("t0", "t0/0 t0/1")}
    assert texts(STICKY.assign(members, {"t0": 2, "t1": 1})) == {"A": "t1/0", "B": "t0/0 t0/1"}


def test_only_one_of_two_owners_gives_a_partition_when_one_is_enough() -> None:
    """C is full with t2: t0/1 goes to A, and B keeps t0/0 beside t1/0."""
    members = {
        "A": subscribed("t0"),
        "B": subscribed("t0 t1", "t0/0"),
        "C": subscribed("t0 t1 t2", "t0/1"),
    }
    plan = STICKY.assign(members, {"t0": 2, "t1": 1, "t2": 2})
    assert texts(plan) == {"A": "t0/1", "B": "t0/0 t1/0", "C": "t2/0 t2/1"}


def test_members_beyond_the_partitions_get_an_empty_row() -> None:
    # requirement: G5
    members = {"A": subscribed("t0"), "B": subscribed("t0", "t0/0"), "C": subscribed("none")}
    assert texts(STICKY.assign(members, {"t0": 1})) == {"A": "", "B": "t0/0", "C": ""}


@pytest.mark.parametrize(("of_a", "of_b", "owner"), [(2, 1, "A"), (1, 2, "B"), (2, 2, None), (-1, 0, "B")])
def test_the_highest_generation_owns(of_a: int, of_b: int, owner: str | None) -> None:
    claims = {"A": subscribed("t0", "t0/0", of_a), "B": subscribed("t0", "t0/0", of_b)}
    for members in (claims, dict(reversed(claims.items()))):
        assert owners(members) == {PARTITION: owner}


def test_a_third_claim_decides_between_equal_ones() -> None:
    claims = {
        name: subscribed("t0", "t0/0", generation) for name, generation in (("A", 1), ("B", 1), ("C", 2))
    }
    assert owners(claims) == owners(dict(reversed(claims.items()))) == {PARTITION: "C"}


def test_an_old_claim_keeps_nothing() -> None:
    members = {"A": subscribed("t0", "t0/0 t0/1", 1), "B": subscribed("t0", "t0/0 t0/1", 2)}
    assert texts(STICKY.assign(members, {"t0": 2})) == {"A": "t0/1", "B": "t0/0"}
