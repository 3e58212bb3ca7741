"""``roundrobin``: the partitions of all topics in turn."""

from __future__ import annotations

from raftlog.assignors import assignor
from tests.helpers.group_plans import subscribed, texts

ROUND_ROBIN = assignor("roundrobin")


def test_the_example_of_kafka_with_equal_subscriptions() -> None:
    # requirement: G14
    both = {"C0": subscribed("t0 t1"), "C1": subscribed("t0 t1")}
    plan = ROUND_ROBIN.assign(both, {"t0": 3, "t1": 3})
    assert texts(plan) == {"C0": "t0/0 t0/2 t1/1", "C1": "t0/1 t1/0 t1/2"}


def test_the_example_of_kafka_with_different_subscriptions() -> None:
    members = {"C0": subscribed("t0"), "C1": subscribed("t0 t1"), "C2": subscribed("t0 t1 t2")}
    plan = ROUND_ROBIN.assign(members, {"t0": 1, "t1": 2, "t2": 3})
    assert texts(plan) == {"C0": "t0/0", "C1": "t1/0", "C2": "t1/1 t2/0 t2/1 t2/2"}


def test_the_turn_passes_over_members_without_the_topic_and_goes_on_after_them() -> None:
    members = {"A": subscribed("t0 t2"), "B": subscribed("t1"), "C": subscribed("t0 t2")}
    plan = ROUND_ROBIN.assign(members, {"t0": 1, "t1": 1, "t2": 3})
    assert texts(plan) == {"A": "t0/0 t2/1", "B": "t1/0", "C": "t2/0 t2/2"}


def test_members_beyond_the_partitions_get_an_empty_row() -> None:
    # requirement: G5
    members = {name: subscribed("t0") for name in ("A", "B", "C")}
    assert texts(ROUND_ROBIN.assign(members, {"t0": 2})) == {"A": "t0/0", "B": "t0/1", "C": ""}


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    members = {"A": subscribed("t0 gone"), "B": subscribed("gone")}
    assert texts(ROUND_ROBIN.assign(members, {"t0": 1, "other": 4})) == {"A": "t0/0", "B": ""}


def test_static_members_come_first_by_their_instance_id() -> None:
    members = {
        "a": subscribed("t0"),
        "x": subscribed("t0", instance_id="two"),
        "y": subscribed("t0", instance_id="one"),
    }
    assert texts(ROUND_ROBIN.assign(members, {"t0": 3})) == {"a": "t0/2", "x": "t0/1", "y": "t0/0"}
