"""``cooperative-sticky``: what has to be revoked first is withheld."""

from __future__ import annotations

from raftlog.assignors import assignor
from tests.helpers.group_plans import rejoined, subscribed, texts

COOPERATIVE = assignor("cooperative-sticky")
STICKY = assignor("sticky")


def test_a_moving_partition_is_withheld_and_given_in_the_next_generation() -> None:
    members = {"A": subscribed("t0", "t0/0 t0/1 t0/2 t0/3"), "B": subscribed("t0")}
    first = COOPERATIVE.assign(members, {"t0": 4})
    assert texts(first) == {"A": "t0/0 t0/1", "B": ""}
    second = COOPERATIVE.assign(rejoined(members, first), {"t0": 4})
    assert texts(second) == {"A": "t0/0 t0/1", "B": "t0/2 t0/3"}


def test_partitions_without_an_owner_are_given_at_once() -> None:
    members = {"A": subscribed("t0", "t0/0"), "B": subscribed("t0")}
    assert texts(COOPERATIVE.assign(members, {"t0": 3})) == {"A": "t0/0 t0/2", "B": "t0/1"}


def test_a_group_without_moves_gets_the_sticky_plan() -> None:
    members = {"A": subscribed("t0 t1", "t0/0 t1/0"), "B": subscribed("t0 t1", "t0/1")}
    counts = {"t0": 2, "t1": 2}
    assert COOPERATIVE.assign(members, counts) == STICKY.assign(members, counts)


def test_a_partition_of_a_topic_that_its_owner_leaves_is_withheld() -> None:
    """The owner has rejoined with other topics, and reads the partition until it gets its row."""
    members = {"A": subscribed("t1", "t0/0"), "B": subscribed("t0")}
    first = COOPERATIVE.assign(members, {"t0": 1, "t1": 1})
    assert texts(first) == {"A": "t1/0", "B": ""}
    assert texts(COOPERATIVE.assign(rejoined(members, first), {"t0": 1, "t1": 1})) == {
        "A": "t1/0",
        "B": "t0/0",
    }


def test_a_partition_with_two_claims_for_one_generation_is_withheld_from_both() -> None:
    members = {"A": subscribed("t0", "t0/0", 1), "B": subscribed("t0", "t0/0", 1)}
    assert texts(COOPERATIVE.assign(members, {"t0": 1})) == {"A": "", "B": ""}


def test_the_owner_keeps_its_partition_beside_an_older_claim() -> None:
    members = {"A": subscribed("t0", "t0/0 t0/1", 1), "B": subscribed("t0", "t0/0", 2)}
    assert texts(COOPERATIVE.assign(members, {"t0": 2})) == {"A": "t0/1", "B": "t0/0"}
