"""Requests become commands or name what to send instead, and targets of replicas are kept and reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from partitions.metadata.commands import (
    AlterTopicConfig,
    Command,
    CreateTopic,
    DecommissionBroker,
    DeleteTopic,
    DrainBroker,
    FenceBroker,
    RegisterBroker,
    SetReplicas,
)
from partitions.metadata.features import FORGETTING
from partitions.metadata.image import MetadataImage, PartitionInfo
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.move_planner import MoveReplicas, check_recovery
from partitions.metadata.planner import NewTopic, PlannerLimits, plan
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    PartitionNotFound,
    PreconditionFailed,
    RaftlogError,
    TopicExists,
    TopicNotFound,
)
from raftlog.types import NodeId, TopicId
from tests.helpers.metadata_images import (
    applied,
    cluster,
    create,
    creation_id,
    nodes,
    recovered,
    register,
    reported,
    set_replicas,
)

LIMITS = PlannerLimits()


def wish(
    name: str = "orders",
    *,
    partitions: int = 3,
    factor: int | None = 3,
    number: int = 1,
    internal: bool = False,
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
    assert f"tolerate no more failures than {factor - 1}" in str(error)
    assert error.details["field"] == "replication_factor"


@pytest.mark.parametrize("factor", [-1, 0, 9, 1 << 40])
def test_another_replication_factor_is_refused_with_the_choice(factor: int) -> None:
    assert "choose 1, 3, 5 or 7" in str(refusal(wish(factor=factor), cluster(brokers=9)))


def test_a_factor_above_the_usable_brokers_is_refused() -> None:
    image = cluster(brokers=4)
    image, _ = applied(DrainBroker(NodeId(1)), FenceBroker(NodeId(2), "first"), to=image)
    assert "only 2 brokers take new replicas" in str(refusal(wish(), image))
    assert all(set(row) <= {3, 4} for row in planned(wish(factor=1), image).placement)


# requirement: RP1
@pytest.mark.parametrize(("brokers", "expected"), [(1, 1), (2, 1), (3, 3), (4, 3), (9, 3)])
def test_the_default_factor_is_the_largest_odd_number_up_to_three_of_the_brokers(
    brokers: int, expected: int
) -> None:
    assert {len(row) for row in planned(wish(factor=None), cluster(brokers=brokers)).placement} == {expected}


# requirement: RP1
@pytest.mark.parametrize("out", [FenceBroker(NodeId(3), "first"), DrainBroker(NodeId(3)), None])
def test_brokers_that_are_down_count_for_the_default_factor(out: Command | None) -> None:
    """And members of the metadata group that have not registered yet: here broker 3, or 4."""
    image = applied(out, to=cluster())[0] if out else cluster(brokers=2)
    with pytest.raises(InvalidRequest, match="3 replicas by default, but only") as caught:
        plan(wish(factor=None), image, LIMITS, nodes(1, 2, 4))
    assert "field" not in caught.value.details
    left, _ = applied(DecommissionBroker(NodeId(3)), to=cluster())
    assert len(planned(wish(factor=None), left).placement[0]) == 1


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
    with pytest.raises(TopicNotFound):
        plan(AlterTopicConfig("b", {}), image, LIMITS)


def test_only_the_users_topics_are_deleted() -> None:
    image, _ = applied(create("a", (1,)), create("__offsets", (1,), number=2), to=cluster())
    assert plan(DeleteTopic("a"), image, LIMITS) == DeleteTopic("a")
    with pytest.raises(TopicNotFound):
        plan(DeleteTopic("b"), image, LIMITS)
    with pytest.raises(InvalidRequest, match="is internal"):
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
    with pytest.raises(InvalidRequest, match="is 3, but a partition has 2 replicas"):
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
        (moved(add=2), InvalidRequest, "already holds a replica"),
        (moved(remove=4), InvalidRequest, "holds no replica"),
        (moved(add=4, topic="nothing"), TopicNotFound, "nothing"),
        (MoveReplicas("orders", 5, None, NodeId(4)), PartitionNotFound, "not 5"),
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
        InvalidRequest, match=r"min\.insync\.replicas of orders is 3.*name at least 3"
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
    with pytest.raises(Conflict, match="draining"):
        planned_move(moved(add=4), drained)
    # A dead or drained one that holds a replica may stay for the time being, or leave.
    assert planned_move(moved(1, 2, 3, 4), fenced(3)).replicas == nodes(1, 2, 3, 4)
    assert planned_move(moved(1, 2, 4), fenced(3)).replicas == nodes(1, 2, 4)


def test_a_change_that_no_majority_could_carry_or_that_leaves_none_is_refused() -> None:
    with pytest.raises(Conflict, match="vote now"):
        planned_move(moved(1, 4, 5), fenced(2, 3))
    with pytest.raises(Conflict, match="would vote"):
        planned_move(moved(2, 3), fenced(3))


# requirement: F6
def test_a_partition_with_a_living_majority_is_not_recovered() -> None:
    with pytest.raises(Conflict, match="needs no recovery"):
        check_recovery(recovered("orders", 1, 3, topic_id=ORDERS), fenced(3))
    command = recovered("orders", 1, 2, 3, topic_id=ORDERS)
    assert plan(command, fenced(2, 3), PlannerLimits()) is command


TWO_PARTITIONS, _ = applied(create("orders", (1, 2, 3), (2, 3, 4)), to=cluster(brokers=5))


def first(image: MetadataImage) -> PartitionInfo:
    return image.topics["orders"].partitions[0]


# requirement: F2
def test_a_target_is_kept_until_a_leader_reports_that_it_is_reached() -> None:
    image, _ = applied(set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=TWO_PARTITIONS)
    moving = first(image)
    assert (moving.replicas, moving.target, moving.added) == (nodes(1, 2, 3), nodes(2, 3, 4), nodes(4))
    assert moving.all_replicas == nodes(1, 2, 3, 4)
    assert moving.version == image.version
    assert image.topics["orders"].version == TWO_PARTITIONS.topics["orders"].version  # its ETag
    image, _ = applied(reported("orders", (2, 3, 4), 17), to=image)
    there = first(image)
    assert (there.replicas, there.target, there.membership_index) == (nodes(2, 3, 4), (), 17)
    assert there.all_replicas == nodes(2, 3, 4)
    assert not any(there.is_initial(node) for node in nodes(1, 2, 3, 4))


def test_the_order_of_a_target_is_kept_since_the_first_is_preferred() -> None:
    image, _ = applied(set_replicas("orders", (4, 3, 2), (1, 2, 3)), to=TWO_PARTITIONS)
    image, _ = applied(reported("orders", (2, 3, 4), 17), to=image)
    assert first(image).replicas == nodes(4, 3, 2)
    image, _ = applied(set_replicas("orders", (3, 2, 4), (4, 3, 2)), to=image)
    assert (first(image).replicas, first(image).target) == (nodes(3, 2, 4), ())


def test_a_report_that_came_late_is_no_news() -> None:
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        reported("orders", (2, 3, 4), 17),
        set_replicas("orders", (1, 2, 3), (2, 3, 4)),
        reported("orders", (1, 2, 3), 30),
        to=TWO_PARTITIONS,
    )
    late, _ = applied(reported("orders", (2, 3, 4), 17), to=image)
    assert late is image
    another_group, _ = applied(reported("orders", (2, 3, 4), 50, group=9), to=image)
    assert another_group is image


def test_a_report_of_an_earlier_target_does_not_end_a_later_one_that_names_the_same_brokers() -> None:
    """Else the metadata would say that nobody moves, and no leader would look at what its log says."""
    image, _ = applied(set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=TWO_PARTITIONS)
    report = reported("orders", (2, 3, 4), 17, target_version=first(image).version)
    image, _ = applied(
        report,
        set_replicas("orders", (1, 2, 3), (2, 3, 4)),  # the group gets there, and nobody hears of it yet
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        to=image,
    )
    repeated, _ = applied(report, to=image)
    assert repeated is image
    assert first(image).target == nodes(2, 3, 4)
    image, _ = applied(reported("orders", (2, 3, 4), 60), to=image)
    assert first(image).target == ()


def test_a_report_that_is_repeated_leaves_the_preferred_order() -> None:
    image, _ = applied(set_replicas("orders", (4, 3, 2), (1, 2, 3)), to=TWO_PARTITIONS)
    report = reported("orders", (2, 3, 4), 17, target_version=first(image).version)
    image, _ = applied(report, to=image)
    assert applied(report, to=image)[0] is image


def test_a_report_of_a_step_leaves_the_target() -> None:
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)), reported("orders", (1, 2, 3, 4), 9), to=TWO_PARTITIONS
    )
    assert (first(image).target, first(image).added) == (nodes(2, 3, 4), ())
    assert not first(image).is_initial(nodes(4)[0])


# requirement: F3
def test_brokers_of_changed_targets_are_remembered_until_a_target_is_reached() -> None:
    """A leader may have reached an earlier target and not have reported it."""
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        set_replicas("orders", (1, 2, 5), (2, 3, 4)),
        reported("orders", (1, 2, 3), 9),
        to=replace(TWO_PARTITIONS, feature_level=FORGETTING),
    )
    assert first(image).possible_replicas == {1, 2, 3, 4, 5}
    there, _ = applied(reported("orders", (1, 2, 5), 20), to=image)
    assert first(there).possible_replicas == {1, 2, 5}


def test_a_replica_that_a_target_was_to_bring_back_is_remembered_too() -> None:
    level = replace(TWO_PARTITIONS, feature_level=FORGETTING)
    image, _ = applied(set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=level)
    late = reported("orders", (2, 3, 4), 17, target_version=first(image).version)
    image, _ = applied(set_replicas("orders", (1, 2, 3), (2, 3, 4)), late, to=image)
    assert (first(image).replicas, first(image).target) == (nodes(2, 3, 4), nodes(1, 2, 3))
    image, _ = applied(set_replicas("orders", (2, 3, 5), (1, 2, 3)), to=image)
    assert first(image).possible_replicas == {1, 2, 3, 4, 5}


def test_below_the_feature_level_the_image_is_that_of_the_release_before() -> None:
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        set_replicas("orders", (1, 2, 5), (2, 3, 4)),
        reported("orders", (1, 2, 3), 9),
        to=TWO_PARTITIONS,
    )
    assert first(image).added == nodes(5)


def test_going_back_calls_a_move_off_and_the_leader_reports_when_it_has() -> None:
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        set_replicas("orders", (1, 2, 3), (2, 3, 4)),
        to=TWO_PARTITIONS,
    )
    assert first(image).target == nodes(1, 2, 3)
    image, _ = applied(reported("orders", (1, 2, 3), -1), to=image)
    assert (first(image).target, first(image).added) == ((), ())
    assert first(image).is_initial(nodes(1)[0])


def test_a_plan_that_was_made_of_older_metadata_is_refused() -> None:
    image, _ = applied(set_replicas("orders", (1, 2, 3, 4), (1, 2, 3)), to=TWO_PARTITIONS)
    after, reply = applied(set_replicas("orders", (1, 2, 3, 5), (1, 2, 3)), to=image)
    assert isinstance(reply, PreconditionFailed)
    assert after is image


@pytest.mark.parametrize("wanted", [(), (1, 1, 2), (1, 2, 9)])
def test_what_no_planner_writes_changes_nothing(wanted: tuple[int, ...]) -> None:
    after, reply = applied(set_replicas("orders", wanted, (1, 2, 3)), to=TWO_PARTITIONS)
    assert isinstance(reply, InvalidRequest)
    assert after is TWO_PARTITIONS
    assert isinstance(applied(reported("orders", (), 5), to=TWO_PARTITIONS)[1], InvalidRequest)


def test_another_topic_of_that_name_and_a_partition_that_is_not_there_are_told() -> None:
    command = set_replicas("orders", (1, 2), (1, 2, 3), TopicId("9" * 32))
    assert isinstance(applied(command, to=TWO_PARTITIONS)[1], TopicNotFound)
    command = SetReplicas("orders", TWO_PARTITIONS.topics["orders"].topic_id, 7, nodes(1, 2), nodes(1, 2, 3))
    assert isinstance(applied(command, to=TWO_PARTITIONS)[1], PartitionNotFound)


# requirement: F6
def test_a_recovered_partition_is_another_group_with_one_replica_and_a_record_of_it() -> None:
    image, _ = applied(recovered("orders", 1, 2, 3), to=TWO_PARTITIONS)
    partition = first(image)
    assert partition.group_id == 3  # none of those given before
    assert (partition.replicas, partition.target, partition.added) == (nodes(1), (), ())
    assert partition.is_initial(nodes(1)[0])
    (record,) = partition.unsafe_recoveries
    assert (record.survivor, record.lost, record.last_index, record.commit_index) == (1, nodes(2, 3), 20, 18)
    again, reply = applied(recovered("orders", 1, 2, 3), to=image)
    assert again is image
    assert isinstance(reply, PreconditionFailed)
    assert decode_image(encode_image(image)) == image
    late, _ = applied(reported("orders", (1, 2, 3), 90), to=image)
    assert late is image


# requirement: F6
def test_a_partition_is_recovered_from_a_broker_of_a_changed_target_if_targets_are_remembered() -> None:
    changes = (set_replicas("orders", (2, 3, 4), (1, 2, 3)), set_replicas("orders", (1, 2, 3), (2, 3, 4)))
    image, _ = applied(
        *changes, recovered("orders", 4, 2, 3), to=replace(TWO_PARTITIONS, feature_level=FORGETTING)
    )
    assert first(image).replicas == nodes(4)
    before = replace(TWO_PARTITIONS, feature_level=FORGETTING - 1)
    _, reply = applied(*changes, recovered("orders", 4, 2, 3), to=before)
    assert isinstance(reply, InvalidRequest)


def test_nobody_is_recovered_from_a_broker_without_a_replica() -> None:
    after, reply = applied(recovered("orders", 5, 1, 2, 3), to=TWO_PARTITIONS)
    assert isinstance(reply, InvalidRequest)
    assert after is TWO_PARTITIONS


# requirement: F6
def test_a_broker_with_another_disk_is_a_newcomer_wherever_it_had_a_replica() -> None:
    image, _ = applied(register(2, disk_id="a"), to=TWO_PARTITIONS)
    assert first(image).is_initial(nodes(2)[0])
    image, _ = applied(register(2, disk_id="a", incarnation="second"), to=image)
    assert first(image).is_initial(nodes(2)[0])
    image, _ = applied(register(2, disk_id="b", incarnation="third"), to=image)
    assert [p.added for p in image.topics["orders"].partitions] == [nodes(2), nodes(2)]
    assert not first(image).is_initial(nodes(2)[0])
    assert first(image).is_initial(nodes(1)[0])


def test_a_topic_that_is_created_after_a_recovery_has_groups_of_its_own() -> None:
    image, _ = applied(recovered("orders", 1, 2, 3), create("later", (1, 2, 3), number=2), to=TWO_PARTITIONS)
    groups = [partition.group_id for topic in image.topics.values() for partition in topic.partitions]
    assert len(groups) == len(set(groups)) == 3
