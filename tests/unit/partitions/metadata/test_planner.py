"""Requests and targets that make sense become commands; the others name what to send instead."""

from __future__ import annotations

from collections import Counter

import pytest

from partitions.metadata.commands import (
    AlterTopicConfig,
    CreateTopic,
    DeleteTopic,
    DrainBroker,
    FenceBroker,
    RegisterBroker,
    SetReplicas,
)
from partitions.metadata.image import MetadataImage
from partitions.metadata.move_planner import MoveReplicas, check_recovery
from partitions.metadata.planner import NewTopic, PlannerLimits, plan
from raftlog.errors import Conflict, InvalidRequest, RaftlogError, TopicExists, UnknownPartition, UnknownTopic
from raftlog.types import NodeId
from tests.helpers.metadata_images import (
    applied,
    cluster,
    create,
    creation_id,
    nodes,
    recovered,
    set_replicas,
)

LIMITS = PlannerLimits()


def wish(
    name: str = "orders", *, partitions: int = 3, factor: int = 3, number: int = 1, internal: bool = False
) -> NewTopic:
    return NewTopic(name, creation_id(number), partitions, factor, {}, internal=internal)


def planned(request: NewTopic, image: MetadataImage) -> CreateTopic:
    command = plan(request, image, LIMITS)
    assert isinstance(command, CreateTopic)
    return command


def refusal(request: NewTopic, image: MetadataImage | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        plan(request, image or cluster(), LIMITS)
    return caught.value


# requirement: ST6
def test_a_wish_becomes_a_topic_with_a_place_for_every_replica() -> None:
    command = planned(wish(), cluster())
    assert (command.name, command.creation_id) == ("orders", creation_id(1))
    assert Counter(row[0] for row in command.placement) == {1: 1, 2: 1, 3: 1}
    assert all(sorted(row) == [1, 2, 3] for row in command.placement)


def test_the_same_question_gives_the_same_plan() -> None:
    assert planned(wish(), cluster()) == planned(wish(), cluster())


# requirement: RP11
def test_replicas_stand_in_different_racks() -> None:
    command = planned(wish(), cluster("a", "a", "b", "b", "c", "c"))
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    assert all({racks[broker] for broker in row} == {"a", "b", "c"} for row in command.placement)


# requirement: T1
def test_a_name_that_is_taken_is_a_conflict() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster())
    with pytest.raises(TopicExists):
        plan(wish(number=2), image, LIMITS)


def test_asking_again_for_the_same_topic_plans_what_is_there() -> None:
    image, _ = applied(planned(wish(), cluster()), to=cluster())
    again = planned(wish(), image)
    assert applied(again, to=image)[0] is image


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "1 to 249 characters"),
        ("x" * 250, "1 to 249"),
        (".", "directory"),
        ("..", "directory"),
        ("../x", "A to Z"),
        ("a/b", "A to Z"),
        ("a b", "A to Z"),
        ("orders\n", "A to Z"),
        ("оrders", "A to Z"),  # noqa: RUF001 - a Cyrillic twin is the point
        ("caf\u00e9", "A to Z"),
        ("\u0661", "A to Z"),  # a digit elsewhere
        ("__offsets", "two underscores"),
    ],
)
def test_a_bad_name_is_refused_naming_the_rule(name: str, rule: str) -> None:
    error = refusal(wish(name))
    assert rule in str(error)
    assert error.details["field"] == "name"
    assert len(str(error)) < 300


@pytest.mark.parametrize("name", ["a", "x" * 249, "a.b_c-D9", "a_b", "a.b", "...", "_x"])
def test_a_good_name_is_taken(name: str) -> None:
    assert planned(wish(name), cluster()).name == name


def test_names_that_differ_in_dots_and_underscores_are_two_topics() -> None:
    image, _ = applied(planned(wish("a.b"), cluster()), to=cluster())
    assert planned(wish("a_b", number=2), image).name == "a_b"


def test_the_system_names_its_own_topics() -> None:
    assert planned(wish("__offsets", internal=True), cluster()).name == "__offsets"


@pytest.mark.parametrize("factor", [2, 4])
def test_an_even_replication_factor_is_refused_with_the_reason(factor: int) -> None:
    error = refusal(wish(factor=factor), cluster(brokers=5))
    assert f"survive no more failures than {factor - 1}" in str(error)
    assert error.details["field"] == "replication_factor"


@pytest.mark.parametrize("factor", [-1, 0, 9, 1 << 40])
def test_another_replication_factor_is_refused_with_the_choice(factor: int) -> None:
    assert "choose 1, 3, 5 or 7" in str(refusal(wish(factor=factor), cluster(brokers=9)))


def test_a_factor_above_the_usable_brokers_is_refused() -> None:
    image = cluster(brokers=4)
    image, _ = applied(DrainBroker(NodeId(1)), FenceBroker(NodeId(2), "first"), to=image)
    assert "brokers that take new replicas: 2" in str(refusal(wish(), image))
    assert all(set(row) <= {3, 4} for row in planned(wish(factor=1), image).placement)


@pytest.mark.parametrize("partitions", [-1, 0, 10_001, 1 << 40])
def test_a_number_of_partitions_out_of_bounds_is_refused(partitions: int) -> None:
    error = refusal(wish(partitions=partitions))
    assert "1 to 10000" in str(error)
    assert error.details["field"] == "partitions"


def test_a_cluster_that_is_full_says_what_to_do() -> None:
    limits = PlannerLimits(replicas_per_broker_max=3)
    image, _ = applied(create("a", (1, 2, 3), (2, 3, 1)), to=cluster())
    with pytest.raises(InvalidRequest, match="room for 3 more") as caught:
        plan(wish("b", partitions=2), image, limits)
    assert "add brokers" in str(caught.value)
    assert plan(wish("b", partitions=1), image, limits)


def test_a_configuration_is_checked_and_defaults_are_left_out() -> None:
    good = NewTopic("a", creation_id(1), 1, 3, {"retention.ms": "5", "segment.bytes": 128 << 20})
    assert planned(good, cluster()).config == {"retention.ms": 5}
    bad = NewTopic("a", creation_id(1), 1, 3, {"retention.ms": "soon"})
    assert refusal(bad).details["field"] == "config.retention.ms"


def test_a_change_is_checked_against_the_topic() -> None:
    image, _ = applied(create("a", (1,)), to=cluster())
    assert plan(AlterTopicConfig("a", {"retention.ms": "7"}, 4), image, LIMITS) == AlterTopicConfig(
        "a", {"retention.ms": 7}, 4
    )
    with pytest.raises(InvalidRequest, match="a partition has 1 replica;"):
        plan(AlterTopicConfig("a", {"min.insync.replicas": 2}), image, LIMITS)
    with pytest.raises(UnknownTopic):
        plan(AlterTopicConfig("b", {}), image, LIMITS)


def test_only_the_users_topics_are_deleted() -> None:
    image, _ = applied(create("a", (1,)), create("__offsets", (1,), number=2), to=cluster())
    assert plan(DeleteTopic("a"), image, LIMITS) == DeleteTopic("a")
    with pytest.raises(UnknownTopic):
        plan(DeleteTopic("b"), image, LIMITS)
    with pytest.raises(InvalidRequest, match="system's own"):
        plan(DeleteTopic("__offsets"), image, LIMITS)


def test_the_systems_own_topics_stay_compacted() -> None:
    image, _ = applied(create("__offsets", (1,)), to=cluster())
    with pytest.raises(InvalidRequest, match="stays compact") as refusal:
        plan(AlterTopicConfig("__offsets", {"cleanup.policy": "delete"}), image, LIMITS)
    assert refusal.value.details["field"] == "config.cleanup.policy"
    change = AlterTopicConfig("__offsets", {"segment.bytes": 1 << 20})
    assert plan(change, image, LIMITS) == change


def test_what_needs_no_plan_is_its_own_command() -> None:
    request = RegisterBroker(NodeId(1), "x", "http://127.0.0.1:1", "127.0.0.1", 1)
    assert plan(request, MetadataImage(), LIMITS) is request


def test_a_setting_must_fit_the_partition_that_has_the_fewest_replicas() -> None:
    image, _ = applied(create("orders", (1, 2, 3), (1, 2, 3)), to=cluster())
    wish = AlterTopicConfig("orders", {"min.insync.replicas": 3})
    assert plan(wish, image, LIMITS) == wish
    moved = plan(MoveReplicas("orders", 1, remove=NodeId(3)), image, LIMITS)
    image, _ = applied(moved, to=image)
    with pytest.raises(InvalidRequest, match="is 3, and a partition has 2 replicas"):
        plan(wish, image, LIMITS)


def test_a_broker_is_not_filled_beyond_its_limit_although_others_have_room() -> None:
    limits = PlannerLimits(replicas_per_broker_max=3)
    racks, _ = applied(create("a", (1, 2)), to=cluster("x", "y", "y"))
    with pytest.raises(InvalidRequest, match="broker 1 would have 4 replicas of at most 3") as caught:
        plan(
            NewTopic("b", creation_id(2), 1, 3, {}),
            applied(create("c", (1,), (1,), number=3), to=racks)[0],
            limits,
        )
    assert "cluster plan" in str(caught.value)


def test_a_broker_that_is_down_takes_no_room_from_the_others() -> None:
    limits = PlannerLimits(replicas_per_broker_max=2)
    image, _ = applied(create("a", (4,), (4,)), FenceBroker(NodeId(4), "first"), to=cluster(brokers=4))
    assert plan(wish("b", partitions=2), image, limits)


def test_a_cluster_has_a_limit_of_partitions() -> None:
    image, _ = applied(create("a", (1, 2, 3), (2, 3, 1)), to=cluster())
    with pytest.raises(InvalidRequest, match="the cluster has 2 of at most 3") as caught:
        plan(wish("b", partitions=2), image, PlannerLimits(partitions_max=3))
    assert "limits.cluster_partitions_max" in str(caught.value)
    assert plan(wish("b", partitions=1), image, PlannerLimits(partitions_max=3))


BEFORE, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=9))
ORDERS = BEFORE.topics["orders"].topic_id


def fenced(*brokers: int, image: MetadataImage = BEFORE) -> MetadataImage:
    return applied(*(FenceBroker(NodeId(broker), "first") for broker in brokers), to=image)[0]


def planned_move(moved: MoveReplicas, image: MetadataImage = BEFORE) -> SetReplicas:
    command = plan(moved, image, PlannerLimits())
    assert isinstance(command, SetReplicas)
    return command


def moved(
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
        (moved(2, 3, 4), (2, 3, 4)),
        (moved(add=4), (1, 2, 3, 4)),
        (moved(remove=1), (2, 3)),
        (moved(1), (1,)),
        (moved(1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_a_wish_becomes_a_target(asked: MoveReplicas, target: tuple[int, ...]) -> None:
    command = planned_move(asked)
    assert command.replicas == nodes(*target)
    assert command.expected == nodes(1, 2, 3)


def test_one_more_and_one_less_are_counted_from_the_target_under_way() -> None:
    image, _ = applied(set_replicas("orders", (1, 2, 3, 4), (1, 2, 3)), to=BEFORE)
    assert planned_move(moved(add=5), image).replicas == nodes(1, 2, 3, 4, 5)
    assert planned_move(moved(remove=4), image).replicas == nodes(1, 2, 3)
    with pytest.raises(InvalidRequest, match="already"):
        planned_move(moved(add=4), image)


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (moved(), InvalidRequest, "no replica left"),
        (moved(1, 2, 2), InvalidRequest, "twice"),
        (moved(*range(1, 9)), InvalidRequest, "1 to 7"),
        (moved(1, 2, 77), InvalidRequest, "no broker 77"),
        (moved(add=77), InvalidRequest, "no broker 77"),
        (moved(add=2), InvalidRequest, "holds a replica already"),
        (moved(remove=4), InvalidRequest, "holds no replica"),
        (moved(add=4, topic="nothing"), UnknownTopic, "nothing"),
        (MoveReplicas("orders", 5, None, NodeId(4)), UnknownPartition, "not 5"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: MoveReplicas, error: type[RaftlogError], says: str) -> None:
    with pytest.raises(error, match=says):
        planned_move(asked)


def test_the_last_replica_cannot_be_removed() -> None:
    image, _ = applied(create("orders", (1,)), to=cluster())
    with pytest.raises(InvalidRequest, match="delete the topic"):
        planned_move(moved(remove=1), image)


def test_a_target_with_fewer_replicas_than_a_produce_needs_is_refused() -> None:
    image, _ = applied(create("orders", (1, 2, 3), min_insync_replicas=3), to=cluster(brokers=9))
    with pytest.raises(
        InvalidRequest, match=r"min\.insync\.replicas of orders is 3.*name 3 at least"
    ) as refused:
        planned_move(moved(remove=1), image)
    assert refused.value.details["field"] == "replicas"
    assert planned_move(moved(2, 3, 4), image).replicas == nodes(2, 3, 4)
    assert planned_move(moved(remove=1)).replicas == nodes(2, 3), "a majority that nobody set is counted anew"


def test_where_there_are_too_few_replicas_already_some_more_are_no_worse() -> None:
    before, _ = applied(create("orders", (1, 2, 3), min_insync_replicas=3), to=cluster(brokers=9))
    image, _ = applied(recovered("orders", 1, 2, 3), to=before)
    assert planned_move(moved(add=4), image).replicas == nodes(1, 4)
    assert planned_move(moved(4), image).replicas == nodes(4)


def test_new_replicas_go_to_living_brokers_that_are_not_drained() -> None:
    with pytest.raises(Conflict, match="broker 4 is not alive"):
        planned_move(moved(add=4), fenced(4))
    drained, _ = applied(DrainBroker(NodeId(4)), to=BEFORE)
    with pytest.raises(Conflict, match="drained"):
        planned_move(moved(add=4), drained)
    # A dead or drained one that holds a replica may stay for the time being, or leave.
    assert planned_move(moved(1, 2, 3, 4), fenced(3)).replicas == nodes(1, 2, 3, 4)
    assert planned_move(moved(1, 2, 4), fenced(3)).replicas == nodes(1, 2, 4)


def test_a_change_that_no_majority_could_carry_or_that_leaves_none_is_refused() -> None:
    with pytest.raises(Conflict, match="vote now"):
        planned_move(moved(1, 4, 5), fenced(2, 3))
    with pytest.raises(Conflict, match="shall vote"):
        planned_move(moved(2, 3), fenced(3))


# requirement: F6
def test_a_partition_with_a_living_majority_is_not_recovered() -> None:
    with pytest.raises(Conflict, match="needs no recovery"):
        check_recovery(recovered("orders", 1, 3, topic_id=ORDERS), fenced(3))
    command = recovered("orders", 1, 2, 3, topic_id=ORDERS)
    assert plan(command, fenced(2, 3), PlannerLimits()) is command
