"""Which brokers may be decommissioned."""

from __future__ import annotations

import pytest

from partitions.metadata.commands import DecommissionBroker, DrainBroker, FenceBroker
from partitions.metadata.image import MetadataImage
from partitions.metadata.planner import PlannerLimits, plan
from raftlog.errors import Conflict, InvalidRequest
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster, create, set_replicas


def planned(image: MetadataImage, broker: int, *, undo: bool = False) -> DecommissionBroker:
    request = DecommissionBroker(NodeId(broker), not undo)
    command = plan(request, image, PlannerLimits())
    assert command == request
    return request


# requirement: F3
def test_a_broker_whose_replicas_others_can_hold_is_decommissioned() -> None:
    image, _ = applied(create("orders", (2, 3, 4)), to=cluster(brokers=4))
    planned(image, 4)
    planned(image, 1)


def test_the_last_brokers_that_can_hold_a_partition_are_refused_by_name() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=3))
    with pytest.raises(Conflict, match="'orders' has replication factor 3, and without broker 3 only 2"):
        planned(image, 3)


@pytest.mark.parametrize("change", [DrainBroker(NodeId(1)), FenceBroker(NodeId(1), "first")])
def test_brokers_that_take_no_replicas_cannot_hold_one(change: DrainBroker | FenceBroker) -> None:
    image, _ = applied(create("orders", (2, 3, 4)), change, to=cluster(brokers=4))
    with pytest.raises(Conflict):
        planned(image, 4)


def test_of_two_administrators_the_second_is_refused() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    image, _ = applied(planned(image, 3), to=image)
    with pytest.raises(Conflict):
        planned(image, 2)
    planned(image, 3)  # the same one asks again
    planned(image, 3, undo=True)


def test_a_replica_on_its_way_to_the_broker_counts_too() -> None:
    image, _ = applied(
        create("orders", (1, 2, 3)), set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=cluster(brokers=4)
    )
    image, _ = applied(DrainBroker(NodeId(1)), to=image)
    with pytest.raises(Conflict):
        planned(image, 4)


def test_a_broker_without_replicas_is_always_allowed_and_an_unknown_one_never() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    planned(image, 4)
    with pytest.raises(InvalidRequest, match="no broker 9 is registered; there are 1, 2, 3, 4"):
        planned(image, 9)


def drained(image: MetadataImage, broker: int) -> MetadataImage:
    request = DrainBroker(NodeId(broker))
    assert plan(request, image, PlannerLimits()) == request
    return applied(request, to=image)[0]


# requirement: F3
def test_one_broker_at_a_time_is_drained_in_every_cluster() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=3))
    one = drained(image, 1)
    assert drained(one, 1) is one, "a repeated request"
    with pytest.raises(Conflict, match=r"brokers \[1\] are drained or down.* only 1 broker .* factor 3"):
        drained(one, 2)
    alone, _ = applied(create("orders", (1,)), to=cluster(brokers=1))
    drained(alone, 1)


def test_as_many_brokers_are_drained_as_leave_enough_for_each_topic() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), create("single", (1,), number=2), to=cluster(brokers=5))
    two = drained(drained(image, 1), 2)
    down, _ = applied(FenceBroker(NodeId(4), "first"), to=two)
    assert drained(down, 2) is down, "a repeated request"
    with pytest.raises(
        Conflict, match=r"topic 'orders' has replication factor 3; recommission or start"
    ) as it:
        drained(two, 3)
    assert it.value.details["topics"] == ["orders"]


def test_a_broker_that_is_down_counts_as_drained_and_a_decommissioned_one_does_not() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    down, _ = applied(FenceBroker(NodeId(4), "first"), DecommissionBroker(NodeId(4)), to=image)
    drained(down, 1)
    down, _ = applied(FenceBroker(NodeId(4), "first"), to=image)
    drained(drained(image, 4), 4)
    with pytest.raises(Conflict, match=r"brokers \[4\]"):
        drained(down, 1)


def test_an_unknown_broker_is_not_drained() -> None:
    with pytest.raises(InvalidRequest, match="no broker 9 is registered; there are 1, 2, 3"):
        drained(cluster(brokers=3), 9)


def test_many_topics_are_named_by_their_factors() -> None:
    commands = [create(f"t{number}", (1, 2, 3), number=number) for number in range(7)]
    image, _ = applied(*commands, create("wide", (1, 2, 3, 4, 5), number=9), to=cluster(brokers=5))
    image, _ = applied(DrainBroker(NodeId(4)), DrainBroker(NodeId(5)), to=image)
    with pytest.raises(
        Conflict,
        match="topic 'wide' has replication factor 5 and topics 't0', 't1', 't2', 't3', 't4' and 2 more "
        "have replication factor 3, and without broker 1 only 2 brokers can hold one",
    ):
        planned(image, 1)


# requirement: F3
def test_a_broker_that_is_dead_is_decommissioned() -> None:
    image, _ = applied(create("orders", (1, 2, 4)), FenceBroker(NodeId(4), "first"), to=cluster(brokers=4))
    planned(image, 4)
    image, _ = applied(FenceBroker(NodeId(3), "first"), to=image)
    with pytest.raises(Conflict, match="without broker 4 only 2 brokers can hold one"):
        planned(image, 4)
