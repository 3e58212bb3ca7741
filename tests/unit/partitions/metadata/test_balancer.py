"""When plans are made and carried out: only after all brokers have been the same for long, after healing."""

from __future__ import annotations

from collections.abc import Collection

from partitions.metadata.balancer import Balancer, BalancingSettings, BrokerView
from partitions.metadata.balancing import Loads
from partitions.metadata.commands import DecommissionBroker, EndPlan, SetClusterId, StartPlan
from partitions.metadata.features import PLANS
from partitions.metadata.image import MetadataImage, PlannedMove
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster, create, nodes, register, set_replicas

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


def with_plan() -> MetadataImage:
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
    planned, _ = applied(DecommissionBroker(NodeId(3)), to=with_plan())
    assert balancer().next_of_plan(planned, view(planned, leaving=(3,))) == []
    assert len(balancer().next_of_plan(with_plan(), view(planned))) == 2


def test_where_balancing_is_off_plans_of_operators_move_one_replica_at_a_time() -> None:
    balances, image = balancer(0), uneven()
    assert not any(balances.is_plan_due(image, view(image), now) for now in range(0, 5 * AFTER_MS, 250))
    planned = with_plan()
    (due,) = balances.next_of_plan(planned, view(planned))
    assert not isinstance(due, EndPlan)
    assert due.partition == 0
