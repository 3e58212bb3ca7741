"""Requests for more partitions of a topic become rows of brokers, or are told what to do instead."""

from __future__ import annotations

from collections import Counter

import pytest

from partitions.metadata.commands import AddPartitions, DrainBroker, FenceBroker, UnfenceBroker
from partitions.metadata.image import MetadataImage
from partitions.metadata.planner import NewPartitions, PlannerLimits, plan
from raftlog.errors import InvalidRequest, UnknownTopic
from raftlog.types import NodeId, TopicId
from tests.helpers.metadata_images import applied, cluster, create

LIMITS = PlannerLimits()
ROWS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def wish(image: MetadataImage, count: int, expected: int = 3, name: str = "orders") -> NewPartitions:
    return NewPartitions(name, image.topics[name].topic_id, expected, count)


def planned(image: MetadataImage, count: int, expected: int = 3) -> AddPartitions:
    command = plan(wish(image, count, expected), image, LIMITS)
    assert isinstance(command, AddPartitions)
    return command


def refusal(image: MetadataImage, count: int, limits: PlannerLimits = LIMITS, **more: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        plan(wish(image, count, **more), image, limits)
    return caught.value


# requirement: F4 T3
def test_new_partitions_are_placed_evenly_beside_those_that_exist() -> None:
    image, _ = applied(create("orders", *ROWS), to=cluster(brokers=6))
    command = planned(image, 3)
    assert command.expected == 3
    held = Counter(node for row in command.placement for node in row)
    assert held == {4: 3, 5: 3, 6: 3}, "these hold nothing yet"
    assert Counter(row[0] for row in command.placement) == {4: 1, 5: 1, 6: 1}


# requirement: F4 RP11
def test_replicas_of_new_partitions_are_in_different_racks() -> None:
    racks = ("a", "a", "b", "b", "c", "c")
    image, _ = applied(create("orders", *ROWS), to=cluster(*racks))
    for row in planned(image, 6).placement:
        assert {racks[node - 1] for node in row} == {"a", "b", "c"}


# requirement: F4 F3
def test_draining_and_dead_brokers_get_no_new_partitions() -> None:
    image, _ = applied(create("orders", *ROWS), to=cluster(brokers=5))
    image, _ = applied(DrainBroker(NodeId(4)), FenceBroker(NodeId(5), "first"), to=image)
    assert {node for row in planned(image, 4).placement for node in row} == {1, 2, 3}
    image, _ = applied(FenceBroker(NodeId(1), "first"), to=image)
    refused = refusal(image, 1)
    assert "brokers that take new replicas: 2; start more brokers" in str(refused)
    assert refused.details["field"] == "count"
    image, _ = applied(UnfenceBroker(NodeId(5), "first"), to=image)
    assert {*planned(image, 1).placement[0]} == {2, 3, 5}


def test_a_repeated_request_is_planned_as_it_was_carried_out() -> None:
    image, _ = applied(create("orders", *ROWS), to=cluster(brokers=6))
    first = planned(image, 2)
    once, _ = applied(first, to=image)
    assert planned(once, 2) == first
    twice, reply = applied(planned(once, 2), to=once)
    assert twice is once
    assert reply is once.topics["orders"]


def test_limits_are_checked_with_a_remedy() -> None:
    image, _ = applied(create("orders", *ROWS), create("__offsets", (1,), number=2), to=cluster())
    for count in (0, -1, 9_998):
        refused = refusal(image, count)
        assert "add 1 to 9997" in str(refused)
        assert refused.details["field"] == "count"
    full = refusal(image, 2, PlannerLimits(replicas_per_broker_max=5))
    assert "the partitions need 6 replicas and the cluster has room for 5 more" in str(full)
    assert "choose fewer partitions" in str(full)
    assert "system's own" in str(refusal(image, 1, name="__offsets"))
    with pytest.raises(UnknownTopic):
        plan(NewPartitions("orders", TopicId("0" * 32), 3, 1), image, LIMITS)


def test_new_partitions_could_not_be_written_to_with_too_few_replicas() -> None:
    image, _ = applied(create("orders", *ROWS, min_insync_replicas=4), to=cluster())
    refused = refusal(image, 1)
    assert refused.details["field"] == "config.min.insync.replicas"
