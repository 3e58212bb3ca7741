"""Plans in the metadata: which are refused, how far they are, and what they do next."""

from __future__ import annotations

import pytest

from partitions.metadata.commands import (
    DecommissionBroker,
    DrainBroker,
    EndPlan,
    FenceBroker,
    SetClusterId,
    SetFeatureLevel,
    StartPlan,
)
from partitions.metadata.features import PLANS
from partitions.metadata.image import MetadataImage, PlannedMove
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.planner import PlannerLimits, plan
from partitions.metadata.plans import MoveState, missing_brokers, next_of_plan, state_of
from raftlog.errors import Conflict, InvalidRequest, PreconditionFailed, RaftlogError
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster, create, nodes, reported, set_replicas

LIMITS = PlannerLimits()


def with_topic(*rows: tuple[int, ...], level: int = PLANS, brokers: int = 4) -> MetadataImage:
    image, _ = applied(SetClusterId("c", "b", level), to=cluster(brokers=brokers))
    return applied(create("t", *(rows or ((1, 2, 3),) * 3)), to=image)[0]


def move(image: MetadataImage, partition: int, *target: int) -> PlannedMove:
    topic = image.topics["t"]
    return PlannedMove("t", topic.topic_id, partition, topic.partitions[partition].replicas, nodes(*target))


def started(image: MetadataImage, *moves: PlannedMove) -> MetadataImage:
    after, _ = applied(plan(StartPlan(moves, image.version), image, LIMITS), to=image)
    assert after.plan is not None
    return after


def due(image: MetadataImage, moves_max: int = 10) -> list[MoveReplicas | EndPlan]:
    return next_of_plan(image, frozenset(image.brokers), moves_max)


def test_a_plan_begins_its_moves_a_few_at_a_time_and_ends() -> None:
    image = with_topic()
    image = started(image, move(image, 0, 1, 2, 4), move(image, 1, 4, 2, 3), move(image, 2, 3, 1, 2))
    first = due(image, 1)
    assert [one.partition for one in first if isinstance(one, MoveReplicas)] == [2, 0], "a new order is free"
    for one in first:
        image, reply = applied(plan(one, image, LIMITS), to=image)
        assert not isinstance(reply, RaftlogError)
    assert image.plan is not None
    states = [state_of(image, one) for one in image.plan.moves]
    assert states == [MoveState.MOVING, MoveState.PENDING, MoveState.DONE]
    assert due(image, 1) == []
    image, _ = applied(reported("t", (1, 2, 4), 7), to=image)
    (second,) = due(image, 1)
    assert isinstance(second, MoveReplicas)
    assert second.replicas == nodes(4, 2, 3)
    image, _ = applied(DecommissionBroker(NodeId(4)), to=image)
    assert due(image) == [EndPlan(image.plan.version if image.plan else -1)], "what is left cannot be done"
    image, _ = applied(*due(image), to=image)
    assert image.plan is None


def test_a_plan_of_earlier_placements_is_refused() -> None:
    image = with_topic()
    old = StartPlan((move(image, 0, 1, 2, 4),), image.version)
    later, _ = applied(set_replicas("t", (2, 1, 3), (1, 2, 3)), to=image)
    with pytest.raises(PreconditionFailed, match="out of date"):
        plan(old, later, LIMITS)
    back, _ = applied(set_replicas("t", (1, 2, 3), (2, 1, 3)), to=later)
    with pytest.raises(PreconditionFailed, match="out of date"):
        plan(old, back, LIMITS)
    moving, _ = applied(set_replicas("t", (1, 2, 4), (1, 2, 3)), to=image)
    with pytest.raises(PreconditionFailed, match="out of date"):
        plan(old, moving, LIMITS)


def test_a_plan_of_a_topic_that_was_deleted_is_out_of_date() -> None:
    image = with_topic()
    gone = PlannedMove("other", image.topics["t"].topic_id, 0, nodes(1, 2, 3), nodes(1, 2, 4))
    with pytest.raises(PreconditionFailed, match="out of date"):
        plan(StartPlan((gone,), image.version), image, LIMITS)


def test_there_is_one_plan_at_a_time() -> None:
    image = with_topic()
    second = StartPlan((move(image, 1, 1, 2, 4),), image.version)
    image = started(image, move(image, 0, 1, 2, 4))
    with pytest.raises(Conflict, match="being carried out"):
        plan(second, image, LIMITS)
    after, reply = applied(second, to=image)
    assert isinstance(reply, Conflict)
    assert after is image


def test_a_plan_keeps_the_number_of_replicas() -> None:
    image = with_topic()
    with pytest.raises(InvalidRequest, match="keeps the number"):
        plan(StartPlan((move(image, 0, 1, 2),), image.version), image, LIMITS)


def test_a_plan_names_a_partition_once_and_no_broker_that_is_not_alive() -> None:
    image = with_topic()
    with pytest.raises(InvalidRequest, match="names a partition twice"):
        plan(StartPlan((move(image, 0, 1, 2, 4), move(image, 0, 1, 3, 4)), image.version), image, LIMITS)
    with pytest.raises(InvalidRequest, match="no moves"):
        plan(StartPlan((), image.version), image, LIMITS)
    dead, _ = applied(FenceBroker(NodeId(4), "first"), to=image)
    with pytest.raises(Conflict, match="broker 4 is not alive"):
        plan(StartPlan((move(dead, 0, 1, 2, 4),), dead.version), dead, LIMITS)


@pytest.mark.parametrize("change", [FenceBroker(NodeId(3), "first"), DrainBroker(NodeId(3))])
def test_a_plan_waits_while_a_broker_is_missing_or_draining(change: FenceBroker | DrainBroker) -> None:
    image = with_topic()
    image, _ = applied(change, to=started(image, move(image, 0, 1, 2, 4)))
    assert missing_brokers(image) == [3]
    assert due(image) == []


def test_a_plan_waits_for_a_broker_that_is_not_heard() -> None:
    image = with_topic()
    image = started(image, move(image, 0, 1, 2, 4))
    assert next_of_plan(image, frozenset(nodes(1, 2, 4)), 10) == []


def test_a_decommissioned_broker_is_not_missing() -> None:
    image, _ = applied(DecommissionBroker(NodeId(3)), FenceBroker(NodeId(3), "first"), to=with_topic())
    assert missing_brokers(image) == []


def test_a_move_that_was_overtaken_is_dropped() -> None:
    image = with_topic()
    image = started(image, move(image, 0, 1, 2, 4), move(image, 1, 1, 2, 4))
    image, _ = applied(set_replicas("t", (1, 3, 4), (1, 2, 3)), to=image)
    assert image.plan is not None
    assert [state_of(image, one) for one in image.plan.moves] == [MoveState.DROPPED, MoveState.PENDING]


def test_ending_another_plan_changes_nothing() -> None:
    image = with_topic()
    image = started(image, move(image, 0, 1, 2, 4))
    after, reply = applied(EndPlan(1), to=image)
    assert isinstance(reply, PreconditionFailed)
    assert after is image


def test_a_plan_survives_in_the_snapshot() -> None:
    image = with_topic()
    image = started(image, move(image, 0, 1, 2, 4))
    assert decode_image(encode_image(image)) == image


def test_plans_need_their_feature_level() -> None:
    image = with_topic(level=1)
    request = StartPlan((move(image, 0, 1, 2, 4),), image.version)
    with pytest.raises(Conflict, match="needs feature level 2"):
        plan(request, image, LIMITS)
    image, _ = applied(SetFeatureLevel(PLANS), to=image)
    assert plan(request, image, LIMITS) == request
