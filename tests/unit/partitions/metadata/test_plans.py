"""Plans in the metadata: when they are made, which are refused, how far they are, what comes next."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from partitions.metadata.balancer import Balancer, BalancingSettings, BrokerView
from partitions.metadata.balancing import Loads
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
from tests.helpers.metadata_images import applied, cluster, create, nodes, register, reported, set_replicas

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


AFTER_MS = 1000


async def unmeasured(brokers: Collection[NodeId]) -> Loads:
    return {}


def balancer(moves_max: int = 2) -> Balancer:
    return Balancer(BalancingSettings(moves_max=moves_max, after_ms=AFTER_MS), unmeasured)


def view(image: MetadataImage, *, leaving: tuple[int, ...] = (), unable: tuple[int, ...] = ()) -> BrokerView:
    return BrokerView(frozenset(image.brokers), frozenset(nodes(*leaving)), frozenset(nodes(*unable)))


def uneven() -> MetadataImage:
    image, _ = applied(SetClusterId("c", "b", PLANS), to=cluster(brokers=5))
    return applied(create("t", *[(1, 2, 3)] * 3), to=image)[0]


def planned_image() -> MetadataImage:
    image = uneven()
    topic = image.topics["t"]
    moves = tuple(PlannedMove("t", topic.topic_id, at, nodes(1, 2, 3), nodes(1, 2, 5)) for at in range(3))
    return applied(StartPlan(moves, image.version), to=image)[0]


def test_a_plan_is_due_once_the_brokers_have_been_the_same_for_long_and_again_after_as_long() -> None:
    balances, image = balancer(), uneven()
    seen = [balances.is_plan_due(image, view(image), now) for now in range(0, 2 * AFTER_MS + 300, 250)]
    assert [at * 250 for at, is_due in enumerate(seen) if is_due] == [AFTER_MS, 2 * AFTER_MS]


def test_another_process_of_a_broker_begins_the_time_again() -> None:
    balances, image = balancer(), uneven()
    assert not any(balances.is_plan_due(image, view(image), now) for now in range(0, AFTER_MS, 250))
    image, _ = applied(register(3, incarnation="second"), to=image)
    assert not any(
        balances.is_plan_due(image, view(image), now) for now in range(AFTER_MS, 2 * AFTER_MS, 250)
    )


def test_no_plan_is_due_while_a_broker_is_without_room_or_a_replica_moves() -> None:
    balances, image = balancer(), uneven()
    full = view(image, unable=(5,))
    assert not any(balances.is_plan_due(image, full, now) for now in range(0, 5 * AFTER_MS, 250))
    image, _ = applied(set_replicas("t", (1, 2, 4), (1, 2, 3)), to=image)
    assert not any(balances.is_plan_due(image, view(image), now) for now in range(0, 5 * AFTER_MS, 250))


def test_healing_goes_before_plans() -> None:
    image, _ = applied(DecommissionBroker(NodeId(3)), to=uneven())
    balances, leaving = balancer(), view(image, leaving=(3,))
    assert not any(balances.is_plan_due(image, leaving, now) for now in range(0, 5 * AFTER_MS, 250))
    planned, _ = applied(DecommissionBroker(NodeId(3)), to=planned_image())
    assert balancer().next_of_plan(planned, view(planned, leaving=(3,))) == []
    assert len(balancer().next_of_plan(planned_image(), view(planned))) == 2


def test_where_balancing_is_off_plans_of_operators_move_one_replica_at_a_time() -> None:
    balances, image = balancer(0), uneven()
    assert not any(balances.is_plan_due(image, view(image), now) for now in range(0, 5 * AFTER_MS, 250))
    planned = planned_image()
    (due,) = balances.next_of_plan(planned, view(planned))
    assert not isinstance(due, EndPlan)
    assert due.partition == 0
