"""Which targets are taken, and what is said of those that are not."""

from __future__ import annotations

import pytest

from partitions.metadata.commands import DrainBroker, FenceBroker, SetReplicas
from partitions.metadata.image import MetadataImage
from partitions.metadata.move_planner import MoveReplicas, check_recovery
from partitions.metadata.planner import PlannerLimits, plan
from raftlog.errors import Conflict, InvalidRequest, RaftlogError, UnknownPartition, UnknownTopic
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster, create, nodes, recovered, set_replicas

BEFORE, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=9))
ORDERS = BEFORE.topics["orders"].topic_id


def fenced(*brokers: int, image: MetadataImage = BEFORE) -> MetadataImage:
    return applied(*(FenceBroker(NodeId(broker), "first") for broker in brokers), to=image)[0]


def planned(wish: MoveReplicas, image: MetadataImage = BEFORE) -> SetReplicas:
    command = plan(wish, image, PlannerLimits())
    assert isinstance(command, SetReplicas)
    return command


def wish(
    *replicas: int, add: int | None = None, remove: int | None = None, topic: str = "orders"
) -> MoveReplicas:
    return MoveReplicas(
        topic,
        0,
        nodes(*replicas) if replicas or (add is None and remove is None) else None,
        None if add is None else NodeId(add),
        None if remove is None else NodeId(remove),
    )


# requirement: F2
@pytest.mark.parametrize(
    ("asked", "target"),
    [
        (wish(2, 3, 4), (2, 3, 4)),
        (wish(add=4), (1, 2, 3, 4)),
        (wish(remove=1), (2, 3)),
        (wish(1), (1,)),
        (wish(1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_a_wish_becomes_a_target(asked: MoveReplicas, target: tuple[int, ...]) -> None:
    command = planned(asked)
    assert command.replicas == nodes(*target)
    assert command.expected == nodes(1, 2, 3)


def test_one_more_and_one_less_are_counted_from_the_target_under_way() -> None:
    image, _ = applied(set_replicas("orders", (1, 2, 3, 4), (1, 2, 3)), to=BEFORE)
    assert planned(wish(add=5), image).replicas == nodes(1, 2, 3, 4, 5)
    assert planned(wish(remove=4), image).replicas == nodes(1, 2, 3)
    with pytest.raises(InvalidRequest, match="already"):
        planned(wish(add=4), image)


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (wish(), InvalidRequest, "no replica left"),
        (wish(1, 2, 2), InvalidRequest, "twice"),
        (wish(*range(1, 9)), InvalidRequest, "1 to 7"),
        (wish(1, 2, 77), InvalidRequest, "no broker 77"),
        (wish(add=77), InvalidRequest, "no broker 77"),
        (wish(add=2), InvalidRequest, "holds a replica already"),
        (wish(remove=4), InvalidRequest, "holds no replica"),
        (wish(add=4, topic="nothing"), UnknownTopic, "nothing"),
        (MoveReplicas("orders", 5, None, NodeId(4)), UnknownPartition, "not 5"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: MoveReplicas, error: type[RaftlogError], says: str) -> None:
    with pytest.raises(error, match=says):
        planned(asked)


def test_the_last_replica_cannot_be_removed() -> None:
    image, _ = applied(create("orders", (1,)), to=cluster())
    with pytest.raises(InvalidRequest, match="delete the topic"):
        planned(wish(remove=1), image)


def test_a_target_with_fewer_replicas_than_a_produce_needs_is_refused() -> None:
    image, _ = applied(create("orders", (1, 2, 3), min_insync_replicas=3), to=cluster(brokers=9))
    with pytest.raises(
        InvalidRequest, match=r"min\.insync\.replicas of orders is 3.*name 3 at least"
    ) as refused:
        planned(wish(remove=1), image)
    assert refused.value.details["field"] == "replicas"
    assert planned(wish(2, 3, 4), image).replicas == nodes(2, 3, 4)
    assert planned(wish(remove=1)).replicas == nodes(2, 3), "a majority that nobody set is counted anew"


def test_where_there_are_too_few_replicas_already_some_more_are_no_worse() -> None:
    before, _ = applied(create("orders", (1, 2, 3), min_insync_replicas=3), to=cluster(brokers=9))
    image, _ = applied(recovered("orders", 1, 2, 3), to=before)
    assert planned(wish(add=4), image).replicas == nodes(1, 4)
    assert planned(wish(4), image).replicas == nodes(4)


def test_new_replicas_go_to_living_brokers_that_are_not_drained() -> None:
    with pytest.raises(Conflict, match="broker 4 is not alive"):
        planned(wish(add=4), fenced(4))
    drained, _ = applied(DrainBroker(NodeId(4)), to=BEFORE)
    with pytest.raises(Conflict, match="drained"):
        planned(wish(add=4), drained)
    # A dead or drained one that holds a replica may stay for the time being, or leave.
    assert planned(wish(1, 2, 3, 4), fenced(3)).replicas == nodes(1, 2, 3, 4)
    assert planned(wish(1, 2, 4), fenced(3)).replicas == nodes(1, 2, 4)


def test_a_change_that_no_majority_could_carry_or_that_leaves_none_is_refused() -> None:
    with pytest.raises(Conflict, match="vote now"):
        planned(wish(1, 4, 5), fenced(2, 3))
    with pytest.raises(Conflict, match="shall vote"):
        planned(wish(2, 3), fenced(3))


# requirement: F6
def test_a_partition_with_a_living_majority_is_not_recovered() -> None:
    with pytest.raises(Conflict, match="needs no recovery"):
        check_recovery(recovered("orders", 1, 3, topic_id=ORDERS), fenced(3))
    command = recovered("orders", 1, 2, 3, topic_id=ORDERS)
    assert plan(command, fenced(2, 3), PlannerLimits()) is command
