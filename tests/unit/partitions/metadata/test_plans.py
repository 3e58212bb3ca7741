"""Plans that balance brokers: how they are made, when they are due, which are refused, what comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partitions.metadata.balancer import Balancer, BalancingSettings, BrokerView
from partitions.metadata.balancing import BYTES_APART_MIN, Loads, PartitionLoad, plan_balancing, propose
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
from raftlog.types import GroupId, NodeId
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
    with pytest.raises(Conflict, match="in progress"):
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


GIB = 1 << 30


def planned(image: MetadataImage, loads: Loads | None = None) -> tuple[PlannedMove, ...]:
    return plan_balancing(image, [*image.brokers], loads or {})


def carried_out(image: MetadataImage, moves: Sequence[PlannedMove]) -> list[tuple[NodeId, ...]]:
    """The rows of topic ``t`` after these moves."""
    rows = [partition.target_replicas for partition in image.topics["t"].partitions]
    for move in moves:
        assert rows[move.partition] == move.replicas
        rows[move.partition] = move.target
    return rows


def replicas(rows: Sequence[Sequence[int]], brokers: int) -> list[int]:
    counts = Counter(node for row in rows for node in row)
    return [counts[number] for number in range(1, brokers + 1)]


def leaders(rows: Sequence[Sequence[int]], brokers: int) -> list[int]:
    counts = Counter(row[0] for row in rows)
    return [counts[number] for number in range(1, brokers + 1)]


def topic(image: MetadataImage, rows: Sequence[Sequence[int]]) -> MetadataImage:
    return applied(create("t", *rows), to=image)[0]


def sizes(*numbers: int) -> Mapping[GroupId, PartitionLoad]:
    return {GroupId(group): PartitionLoad(size) for group, size in enumerate(numbers, 1)}


# requirement: F2
def test_a_new_broker_takes_its_share_of_replicas_and_leaders() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)
    moves = planned(image)
    rows = carried_out(image, moves)
    assert replicas(rows, 4) == [9, 9, 9, 9]
    assert sorted(leaders(rows, 4)) == [3, 3, 3, 3]
    assert sum({*move.target} != {*move.replicas} for move in moves) == 9, "no replica moves in vain"


ROWS = st.integers(3, 6).flatmap(
    lambda brokers: st.tuples(
        st.just(brokers),
        st.lists(
            st.lists(st.integers(1, brokers), min_size=1, max_size=3, unique=True), min_size=1, max_size=20
        ),
    )
)


@given(ROWS)
def test_every_placement_becomes_even_keeps_its_replicas_and_stays_as_it_is(
    drawn: tuple[int, list[list[int]]],
) -> None:
    brokers, wanted = drawn
    image = cluster(brokers=brokers)
    for number, row in enumerate(wanted):
        image, _ = applied(create(f"t{number}", row, number=number), to=image)
    moves = {move.name: move for move in planned(image)}
    rows = [
        moves[name].target if name in moves else each.partitions[0].replicas
        for name, each in image.topics.items()
    ]
    assert [len(set(row)) for row in rows] == [len(row) for row in wanted]
    counts = replicas(rows, brokers)
    assert max(counts) - min(counts) <= 1
    after, _ = cluster(brokers=brokers), 0
    for number, row in enumerate(rows):
        after, _ = applied(create(f"t{number}", row, number=number), to=after)
    assert planned(after) == (), "a plan of what a plan has made is empty"


@given(st.lists(st.sampled_from([*combinations(range(1, 6), 3)]), min_size=1, max_size=25))
@example([(2, 3, 4), (2, 4, 5), (1, 4, 5), (3, 4, 5), (1, 4, 5)])  # only by way of a third broker
def test_preferred_leaders_are_even_where_a_chain_of_partitions_allows_it(
    rows: list[tuple[int, ...]],
) -> None:
    image = topic(cluster(brokers=5), rows)
    after = carried_out(image, planned(image))
    counts = leaders(after, 5)
    assert max(counts) - min(counts) <= 1


def test_leaders_are_evened_along_a_chain() -> None:
    image = topic(cluster(brokers=3), [(1, 2), (1, 2), (2, 3), (2, 3), (1, 3), (1, 3)])
    moves = planned(image)
    assert leaders(carried_out(image, moves), 3) == [2, 2, 2]
    assert all({*move.target} == {*move.replicas} for move in moves), "nothing is copied"


def test_no_rack_gets_a_second_replica() -> None:
    image = topic(cluster("a", "a", "b", "b", "c", "c"), [(1, 3, 5)] * 6)
    rows = carried_out(image, planned(image))
    assert replicas(rows, 6) == [3, 3, 3, 3, 3, 3]
    assert all(len({(node - 1) // 2 for node in row}) == 3 for row in rows)


def test_replicas_leave_a_rack_that_has_two_of_them() -> None:
    image = topic(cluster("a", "a", "b", "c"), [(1, 2, 3)])
    (move,) = planned(image)
    assert {*move.target} in ({1, 3, 4}, {2, 3, 4})


def test_a_rack_with_fewer_brokers_stays_fuller_than_the_others() -> None:
    image = topic(cluster("a", "b", "c", "c"), [(1, 2, 3)] * 4)
    rows = carried_out(image, planned(image))
    assert replicas(rows, 4) == [4, 4, 2, 2]


def test_a_partition_that_moves_already_counts_and_stays() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3)] * 4)
    image, _ = applied(set_replicas("t", (1, 2, 4), (1, 2, 3)), to=image)
    moves = planned(image)
    assert 0 not in [move.partition for move in moves]
    assert replicas(carried_out(image, moves), 4) == [3, 3, 3, 3]


def test_brokers_that_are_left_out_keep_what_they_have_and_get_nothing() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3)] * 4)
    moves = plan_balancing(image, nodes(1, 2, 3), {})
    assert replicas(carried_out(image, moves), 4) == [4, 4, 4, 0]


@pytest.mark.parametrize(("large", "is_moved"), [(2 * GIB, True), (BYTES_APART_MIN // 2, False)])
def test_brokers_exchange_replicas_until_their_bytes_are_alike(large: int, is_moved: bool) -> None:
    image = topic(cluster(brokers=2), [(1,), (1,), (2,), (2,)])
    loads = sizes(large, large, 0, 0)
    rows = carried_out(image, planned(image, loads))
    assert replicas(rows, 2) == [2, 2]
    held = [
        sum(loads[GroupId(at + 1)].size_bytes for at, row in enumerate(rows) if node in row)
        for node in (1, 2)
    ]
    assert (held == [large, large]) is is_moved


def test_small_differences_of_bytes_move_nothing() -> None:
    image = topic(cluster(brokers=2), [(1,), (1,), (2,), (2,)])
    assert planned(image, sizes(55 * GIB, 54 * GIB, 46 * GIB, 45 * GIB)) == ()


def test_the_least_bytes_are_moved_to_a_new_broker() -> None:
    image = topic(cluster(brokers=3), [(1,), (1,), (1,), (2,), (2,), (2,)])
    moves = planned(image, sizes(90 << 20, 1 << 20, 90 << 20, 90 << 20, 1 << 20, 90 << 20))
    assert [move.partition for move in moves] == [1, 4]


def test_brokers_exchange_leaders_until_their_load_is_alike() -> None:
    image = topic(cluster(brokers=2), [(1, 2), (1, 2), (2, 1), (2, 1)])
    loads = {GroupId(group): PartitionLoad(0, rate) for group, rate in enumerate((900.0, 900.0, 1.0, 1.0), 1)}
    moves = planned(image, loads)
    rows = carried_out(image, moves)
    assert leaders(rows, 2) == [2, 2]
    assert rows[0][0] != rows[1][0]
    assert all({*move.target} == {*move.replicas} for move in moves)


def test_a_follower_moves_rather_than_a_leader() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3), (2, 3, 1), (3, 1, 2)])
    moves = [move for move in planned(image) if {*move.target} != {*move.replicas}]
    assert all(4 in move.target for move in moves)
    assert all(move.replicas[0] in move.target for move in moves)


def test_a_plan_is_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partitions.metadata.balancing.PLAN_MOVES_MAX", 20)
    image = topic(cluster(brokers=2), [(1,)] * 50)
    assert len(planned(image)) == 20


def test_a_proposal_says_what_it_copies_and_for_how_long() -> None:
    image = topic(cluster(brokers=2), [(1,), (1,)])
    proposal = propose(image, [*image.brokers], sizes(10 << 20, 30 << 20), 1 << 20)
    assert proposal.made_at == image.version
    assert sum(proposal.bytes_of) == 10 << 20
    assert proposal.copy_ms == 10_000
