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
