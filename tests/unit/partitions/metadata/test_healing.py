"""Which replicas are restored where, from every state of a cluster with dead or refusing brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.metadata.commands import DecommissionBroker, DrainBroker, FenceBroker
from partitions.metadata.healing import (
    HealingCounts,
    dead_brokers,
    healing_counts,
    leaving_brokers,
    plan_healing,
)
from partitions.metadata.image import MetadataImage
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.planner import PlannerLimits, plan
from partitions.metadata.refusals import AVOIDED_MS, MoveStuck, Refusals, Refused
from partitions.metadata.requests import Question, decode_question, encode_question
from raftlog.types import NodeId, TopicId
from tests.helpers.metadata_images import applied, cluster, create, nodes, recovered, set_replicas

DEAD_MS = 300_000


def fenced(image: MetadataImage, *brokers: int) -> MetadataImage:
    return applied(*(FenceBroker(NodeId(broker), "first") for broker in brokers), to=image)[0]


def planned(
    image: MetadataImage,
    silent: Iterable[int] = (),
    *,
    silent_ms: float = DEAD_MS,
    without_room: Iterable[int] = (),
    moves_max: int = 100,
    replicas_max: int = 1000,
    refused: Refused = (),
) -> list[MoveReplicas]:
    """The moves when these brokers are silent and all others are heard."""
    gone = {NodeId(broker) for broker in silent}
    silence = {broker: silent_ms if broker in gone else 0.0 for broker in image.brokers}
    return plan_healing(
        image,
        leaving_brokers(image, dead_brokers(image, silence, DEAD_MS)),
        frozenset(image.brokers.keys() - gone),
        frozenset(NodeId(broker) for broker in without_room),
        moves_max=moves_max,
        replicas_per_broker_max=replicas_max,
        refused=refused,
    )


def targets(moves: Sequence[MoveReplicas]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {(move.name, move.partition): tuple(move.replicas or ()) for move in moves}


def carried_out(image: MetadataImage, moves: Sequence[MoveReplicas]) -> MetadataImage:
    """The image after these moves have begun."""
    for move in moves:
        image, _ = applied(plan(move, image, PlannerLimits()), to=image)
    return image


# requirement: F1
def test_the_example_of_four_brokers() -> None:
    before, _ = applied(
        create("A", (1, 2, 3), (2, 3, 4)), create("B", (3, 4, 1), number=2), to=cluster(brokers=4)
    )
    assert targets(planned(fenced(before, 3), [3])) == {
        ("A", 0): (1, 2, 4),
        ("A", 1): (2, 4, 1),
        ("B", 0): (4, 1, 2),
    }


def test_nothing_moves_before_the_whole_time_nor_while_the_broker_counts_as_alive() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    assert planned(fenced(before, 3), [3], silent_ms=DEAD_MS - 1) == []
    assert planned(before, [3]) == []
    assert planned(fenced(before, 3), []) == [], "it came back and is not unfenced yet"
    assert len(planned(fenced(before, 3), [3])) == 1


def test_a_new_replica_goes_to_a_broker_that_may_have_it_and_has_fewest() -> None:
    before, _ = applied(
        create("orders", (1, 2, 3)), create("more", (4, 5, 7), number=2), to=cluster(brokers=7)
    )
    dead = fenced(before, 3)
    assert targets(planned(dead, [3])) == {("orders", 0): (1, 2, 6)}
    drained, _ = applied(DrainBroker(NodeId(6)), to=dead)
    assert targets(planned(drained, [3])) == {("orders", 0): (1, 2, 4)}
    assert targets(planned(fenced(dead, 6), [3])) == {("orders", 0): (1, 2, 4)}
    assert targets(planned(dead, [3, 6])) == {("orders", 0): (1, 2, 4)}, "it is not heard now"
    full = planned(drained, [3], replicas_max=1)
    assert full == [], "all that could take it are at their limit"


def test_loads_count_what_this_plan_has_placed() -> None:
    before, _ = applied(create("orders", *[(1, 2, 3)] * 6), to=cluster(brokers=6))
    placed = Counter(target[-1] for target in targets(planned(fenced(before, 3), [3])).values())
    assert placed == {4: 2, 5: 2, 6: 2}


# requirement: RP11
def test_racks_without_a_replica_come_first_and_any_rack_is_better_than_no_replica() -> None:
    racks = ("a", "b", "c", "a", "b", "c")
    before, _ = applied(create("orders", (1, 2, 3)), create("load", (6,), number=2), to=cluster(*racks))
    assert targets(planned(fenced(before, 3), [3])) == {("orders", 0): (1, 2, 6)}
    whole_rack = fenced(before, 3, 6)
    assert targets(planned(whole_rack, [3, 6])) == {("orders", 0): (1, 2, 4)}


def test_partitions_with_the_fewest_live_replicas_come_first() -> None:
    before, _ = applied(
        create("a", (3, 1, 2, 4, 5)),
        create("b", (3, 1, 2), (1, 2, 4), (5, 3, 1), number=2),
        to=cluster(brokers=8),
    )
    moves = planned(fenced(before, 3), [3])
    assert [(move.name, move.partition) for move in moves] == [("b", 0), ("b", 2), ("a", 0)]


def test_no_more_moves_are_under_way_than_allowed() -> None:
    before, _ = applied(create("orders", *[(1, 2, 3)] * 5), to=cluster(brokers=4))
    dead = fenced(before, 3)
    assert planned(dead, [3], moves_max=0) == []
    first = planned(dead, [3], moves_max=2)
    assert len(first) == 2
    begun = carried_out(dead, first)
    assert planned(begun, [3], moves_max=2) == []
    assert [move.partition for move in planned(begun, [3], moves_max=3)] == [2]


def test_a_move_that_cannot_end_holds_up_no_other() -> None:
    before, _ = applied(
        create("stuck", (5, 6, 1)), create("orders", (1, 2, 3), number=2), to=cluster(brokers=7)
    )
    moving, _ = applied(set_replicas("stuck", (5, 6, 2), (5, 6, 1)), to=before)
    dead = fenced(moving, 3, 5, 6)
    assert [move.name for move in planned(dead, [3], moves_max=1)] == ["orders"]


def test_two_of_three_brokers_dead_can_be_restored_by_nobody() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=6))
    assert planned(fenced(before, 2, 3), [2, 3]) == []


def test_without_a_broker_to_spare_nothing_moves() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), create("one", (3,), number=2), to=cluster())
    for dead in (1, 2, 3):
        assert planned(fenced(before, dead), [dead]) == [], (
            "another order of the same brokers restores nothing"
        )


def test_of_two_dead_replicas_one_is_restored_where_one_broker_is_left() -> None:
    before, _ = applied(create("orders", (1, 2, 3, 4, 5)), to=cluster(brokers=6))
    assert targets(planned(fenced(before, 2, 4), [2, 4])) == {("orders", 0): (1, 3, 5, 6, 2)}


def test_the_number_of_replicas_is_that_which_an_operator_has_chosen() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=5))
    fewer, _ = applied(recovered("orders", 1, 2, 3), to=before)
    assert planned(fenced(fewer, 3), [3]) == []
    more, _ = applied(set_replicas("orders", (1, 2, 3, 4), (1, 2, 3)), to=before)
    assert targets(planned(fenced(more, 3), [3])) == {("orders", 0): (1, 2, 4, 5)}


def test_a_move_of_an_operator_away_from_the_dead_broker_is_left_alone() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=5))
    moving, _ = applied(set_replicas("orders", (1, 2, 5), (1, 2, 3)), to=before)
    assert planned(fenced(moving, 3), [3]) == []


def test_a_move_towards_a_broker_that_dies_gets_another_target() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=5))
    dead = fenced(before, 3)
    begun = carried_out(dead, planned(dead, [3]))
    assert begun.topics["orders"].partitions[0].target == nodes(1, 2, 4)
    again = planned(fenced(begun, 4), [3, 4], moves_max=1)
    assert targets(again) == {("orders", 0): (1, 2, 5)}, "it counts as under way already"


def test_a_move_that_began_while_the_plan_was_made_is_not_replaced() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=5))
    dead = fenced(before, 3)
    (move,) = planned(dead, [3])
    meanwhile, _ = applied(set_replicas("orders", (1, 2, 5), (1, 2, 3)), to=dead)
    with pytest.raises(Exception, match="the target of"):
        plan(move, meanwhile, PlannerLimits())


def test_internal_topics_are_restored_like_all_others() -> None:
    before, _ = applied(create("__offsets", (1, 2, 3)), to=cluster(brokers=4))
    assert targets(planned(fenced(before, 3), [3])) == {("__offsets", 0): (1, 2, 4)}


def decommissioned(image: MetadataImage, *brokers: int, undo: bool = False) -> MetadataImage:
    return applied(*(DecommissionBroker(NodeId(broker), not undo) for broker in brokers), to=image)[0]


# requirement: F3
def test_a_decommissioned_broker_gives_its_replicas_to_others_while_it_lives() -> None:
    before, _ = applied(create("A", (2, 3, 4), (1, 2, 3)), to=cluster(brokers=4))
    assert targets(planned(decommissioned(before, 4))) == {("A", 0): (2, 3, 1)}
    assert planned(decommissioned(decommissioned(before, 4), 4, undo=True)) == []


def test_a_decommissioned_broker_that_dies_needs_no_patience() -> None:
    before, _ = applied(create("A", (2, 3, 4)), to=cluster(brokers=4))
    gone = decommissioned(fenced(before, 4), 4)
    assert targets(planned(gone, [4], silent_ms=1)) == {("A", 0): (2, 3, 1)}


def test_dead_brokers_come_before_decommissioned_ones() -> None:
    before, _ = applied(create("A", (1, 2, 3), (1, 2, 4)), to=cluster(brokers=6))
    both = decommissioned(fenced(before, 4), 3)
    assert targets(planned(both, [4], moves_max=1)) == {("A", 1): (1, 2, 5)}


def test_a_new_replica_does_not_go_to_a_broker_without_room() -> None:
    before, _ = applied(create("A", (1, 2, 3)), to=cluster(brokers=5))
    assert targets(planned(fenced(before, 3), [3], without_room=[4])) == {("A", 0): (1, 2, 5)}
    assert planned(fenced(before, 3), [3], without_room=[4, 5]) == []
    assert planned(before, without_room=[1, 2]) == [], "replicas that are there already stay"


def test_a_move_to_a_broker_that_is_without_room_goes_elsewhere_and_holds_up_no_other() -> None:
    before, _ = applied(create("A", (1, 2, 3), (1, 2, 3)), to=cluster(brokers=5))
    begun = carried_out(fenced(before, 3), planned(fenced(before, 3), [3], moves_max=1))
    assert begun.topics["A"].partitions[0].target == nodes(1, 2, 4)
    assert targets(planned(begun, [3], without_room=[4], moves_max=1)) == {
        ("A", 0): (1, 2, 5),
        ("A", 1): (1, 2, 5),
    }
    assert planned(begun, [3], without_room=[4, 5], moves_max=1) == [], "there is no other to go to"
    assert planned(begun, [3], without_room=[1, 2], moves_max=1) == [], "replicas that are there already stay"
    assert planned(begun, [3], moves_max=1) == []


@st.composite
def damaged(draw: st.DrawFn) -> tuple[MetadataImage, list[int]]:
    """A cluster with topics, of which some brokers are dead and some are drained."""
    count = draw(st.integers(3, 9))
    racks = draw(st.lists(st.sampled_from((None, "a", "b", "c")), min_size=count, max_size=count))
    image = cluster(*racks)
    numbers = list(range(1, count + 1))
    for topic in range(draw(st.integers(1, 4))):
        factor = draw(st.sampled_from([size for size in (1, 2, 3, 5, 7) if size <= count]))
        rows = [
            draw(st.permutations(numbers).map(lambda order: order[:factor]))  # noqa: B023
            for _ in range(draw(st.integers(1, 4)))
        ]
        image, _ = applied(create(f"t{topic}", *rows, number=topic + 1), to=image)
    dead = draw(st.lists(st.sampled_from(numbers), unique=True, max_size=count // 2))
    drained = draw(st.lists(st.sampled_from(numbers), unique=True, max_size=2))
    image, _ = applied(*(DrainBroker(NodeId(broker)) for broker in drained), to=image)
    return fenced(image, *dead), dead


# requirement: F1
@given(damaged(), st.integers(1, 5))
def test_plans_are_accepted_end_and_restore_all_that_can_be_restored(
    case: tuple[MetadataImage, list[int]], moves_max: int
) -> None:
    image, dead = case
    rounds = 0
    while moves := planned(image, dead, moves_max=moves_max):
        assert len(moves) <= moves_max
        before, image = image, carried_out(image, moves)
        for topic in image.topics.values():
            for partition in topic.partitions:
                was = before.topics[topic.name].partitions[partition.partition].target_replicas
                row = partition.target_replicas
                assert len(set(row)) == len(row) == len(was)
                assert set(was) - set(row) <= set(dead), "only dead brokers lose replicas"
                for node in set(row) - set(was):
                    assert image.brokers[node].alive
                    assert not image.brokers[node].draining
        image = settled(image)
        rounds += 1
        assert rounds < 100
    usable = {b.broker_id for b in image.brokers.values() if b.alive and not b.draining}
    for topic in image.topics.values():
        for partition in topic.partitions:
            lost = set(partition.replicas) & set(dead)
            has_majority = 2 * len(lost) < len(partition.replicas)
            assert not (lost and has_majority and usable - set(partition.replicas))


def settled(image: MetadataImage) -> MetadataImage:
    """The image once all moves have ended."""
    topics = {
        name: replace(
            topic,
            partitions=tuple(
                replace(partition, replicas=partition.target_replicas, target=())
                for partition in topic.partitions
            ),
        )
        for name, topic in image.topics.items()
    }
    return replace(image, topics=topics)


# requirement: F1
def test_partitions_that_move_and_that_are_to_be_restored_are_counted() -> None:
    image, _ = applied(create("orders", (1, 2, 3), (2, 3, 4), (1, 2, 4)), to=cluster(brokers=5))
    image = fenced(image, 3)
    dead = {NodeId(3)}
    assert healing_counts(image, ()) == HealingCounts(moving=0, to_restore=0)
    assert healing_counts(image, dead) == HealingCounts(moving=0, to_restore=2)
    begun = carried_out(image, planned(image, [3], moves_max=1))
    assert healing_counts(begun, dead) == HealingCounts(moving=1, to_restore=1)
    assert healing_counts(carried_out(begun, planned(begun, [3])), dead) == HealingCounts(
        moving=2, to_restore=0
    )


def stuck(image: MetadataImage, broker: int, partition: int = 0, *, older: int = 0) -> MoveStuck:
    topic = image.topics["orders"]
    version = topic.partitions[partition].version - older
    return MoveStuck("orders", topic.topic_id, partition, version, NodeId(broker), "no room")


# requirement: F1
def test_a_move_to_a_broker_that_does_not_open_its_replica_goes_to_another() -> None:
    before, _ = applied(create("orders", (1, 2, 3), (1, 2, 3)), to=cluster(brokers=5))
    moving = carried_out(fenced(before, 3), planned(fenced(before, 3), [3], moves_max=1))
    assert planned(moving, [3], moves_max=1) == [], "one at a time"
    report = stuck(moving, 4)
    assert targets(planned(moving, [3], moves_max=1, refused=(report,))) == {
        ("orders", 0): (1, 2, 5),
        ("orders", 1): (1, 2, 5),
    }
    assert planned(moving, [3], moves_max=0, refused=(report,)) == [], "it is switched off"
    old = stuck(moving, 4, older=1)
    assert planned(moving, [3], moves_max=1, refused=(old,)) == [], "that was about an earlier target"
    assert targets(planned(moving, [3], moves_max=2, refused=(old,))) == {("orders", 1): (1, 2, 5)}


# requirement: F1
def test_without_another_broker_a_stuck_move_stays_and_does_not_count() -> None:
    before, _ = applied(create("orders", (1, 2, 3), (1, 2, 3)), to=cluster(brokers=4))
    moving = carried_out(fenced(before, 3), planned(fenced(before, 3), [3], moves_max=1))
    assert planned(moving, [3], moves_max=1, refused=(stuck(moving, 4),)) == []
    there, _ = applied(create("other", (1, 3, 4), number=2), to=moving)
    (move,) = planned(there, [3], moves_max=1, refused=(stuck(there, 4),))
    assert (move.name, move.replicas) == ("other", (1, 4, 2))


# requirement: F2
def test_an_operators_move_to_a_broker_that_refuses_goes_back() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=5))
    moving, _ = applied(set_replicas("orders", (1, 2, 4), (1, 2, 3)), to=before)
    assert planned(moving) == []
    assert targets(planned(moving, refused=(stuck(moving, 4),))) == {("orders", 0): (1, 2, 3)}


def test_a_broker_that_votes_already_has_not_refused() -> None:
    before, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=5))
    moving, _ = applied(set_replicas("orders", (1, 2, 4), (1, 2, 3)), to=before)
    assert planned(moving, refused=(stuck(moving, 2),)) == []


def report(broker: int, partition: int = 0, reason: str = "no room") -> MoveStuck:
    return MoveStuck("orders", TopicId("t"), partition, 7, NodeId(broker), reason)


# requirement: F1
def test_a_report_counts_for_a_time_after_the_last_one() -> None:
    refusals = Refusals()
    assert refusals.note(report(4), 1000.0)
    assert refusals.note(report(4, partition=1), 1000.0)
    assert not refusals.note(report(4, reason="not writable"), 6000.0), "it is known"
    assert refusals.now(999.0 + AVOIDED_MS) == (report(4, reason="not writable"), report(4, partition=1))
    assert refusals.now(1000.0 + AVOIDED_MS) == (report(4, reason="not writable"),)
    assert refusals.now(6000.0 + AVOIDED_MS) == ()
    assert refusals.note(report(4), 6000.0 + AVOIDED_MS), "it is news again"


def test_a_controller_that_does_not_lead_forgets() -> None:
    refusals = Refusals()
    refusals.note(report(4), 1000.0)
    refusals.begin_again()
    assert refusals.now(1000.0) == ()


def test_a_report_travels_whole() -> None:
    assert decode_question(encode_question(Question(500, report(4)))) == Question(500, report(4))


# requirement: F2
def test_internal_topics_of_a_small_cluster_get_replicas_when_it_has_grown() -> None:
    def grown(brokers: int) -> MetadataImage:
        made = create("__offsets", (1,), (1,)), create("orders", (1,), number=2)
        return applied(*made, to=cluster(brokers=brokers))[0]

    for small in (1, 2):
        assert planned(grown(small)) == []
        assert healing_counts(grown(small), ()) == HealingCounts()
    image = grown(3)
    assert healing_counts(image, ()) == HealingCounts(moving=0, to_restore=2)
    assert targets(planned(image)) == {("__offsets", 0): (1, 2, 3), ("__offsets", 1): (1, 2, 3)}
    assert len(planned(image, moves_max=1)) == 1
    assert planned(image, moves_max=0) == []
    assert planned(image, without_room=[3]) == [], "two replicas serve less often than one"
    assert targets(planned(grown(4), without_room=[3]))["__offsets", 0] == (1, 2, 4)
    begun = carried_out(image, planned(image))
    assert healing_counts(begun, ()) == HealingCounts(moving=2, to_restore=0)
    assert planned(begun) == []
