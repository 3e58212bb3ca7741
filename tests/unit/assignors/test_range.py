"""``range``: runs of consecutive partitions."""

from __future__ import annotations

from raftlog.assignors import assignor
from tests.helpers.group_plans import subscribed, texts

RANGE = assignor("range")


def test_the_example_of_kafka() -> None:
    # requirement: G14
    both = {"C0": subscribed("t0 t1"), "C1": subscribed("t0 t1")}
    assert texts(RANGE.assign(both, {"t0": 3, "t1": 3})) == {"C0": "t0/0 t0/1 t1/0 t1/1", "C1": "t0/2 t1/2"}


def test_equal_numbers_of_two_topics_go_to_one_member() -> None:
    three = {name: subscribed("orders payments") for name in ("A", "B", "C")}
    plan = RANGE.assign(three, {"orders": 7, "payments": 7})
    for row in plan.values():
        orders, payments = (
            {each.partition for each in row if each.topic == topic} for topic in ("orders", "payments")
        )
        assert orders == payments


def test_only_subscribers_of_a_topic_share_it() -> None:
    members = {"A": subscribed("t0"), "B": subscribed("t0 t1"), "C": subscribed("t1")}
    assert texts(RANGE.assign(members, {"t0": 3, "t1": 2})) == {
        "A": "t0/0 t0/1",
        "B": "t0/2 t1/0",
        "C": "t1/1",
    }


def test_members_beyond_the_partitions_get_an_empty_row() -> None:
    # requirement: G5
    members = {name: subscribed("t0") for name in ("A", "B", "C")}
    assert texts(RANGE.assign(members, {"t0": 2})) == {"A": "t0/0", "B": "t0/1", "C": ""}


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    members = {"A": subscribed("t0 gone"), "B": subscribed("gone")}
    assert texts(RANGE.assign(members, {"t0": 1, "other": 4})) == {"A": "t0/0", "B": ""}


def test_no_members_have_an_empty_plan() -> None:
    assert RANGE.assign({}, {"t0": 3}) == {}


def test_a_static_member_keeps_its_partitions_under_a_new_member_id() -> None:
    first = {"x": subscribed("t0", instance_id="one"), "y": subscribed("t0", instance_id="two")}
    again = {"z": subscribed("t0", instance_id="one"), "y": subscribed("t0", instance_id="two")}
    assert texts(RANGE.assign(first, {"t0": 3})) == {"x": "t0/0 t0/1", "y": "t0/2"}
    assert texts(RANGE.assign(again, {"t0": 3})) == {"y": "t0/2", "z": "t0/0 t0/1"}


def test_static_members_come_before_the_others() -> None:
    members = {"a": subscribed("t0"), "z": subscribed("t0", instance_id="one")}
    assert texts(RANGE.assign(members, {"t0": 1})) == {"a": "", "z": "t0/0"}
