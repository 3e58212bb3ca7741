"""Targets, what leaders report, and recoveries, as the metadata keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitions.metadata.commands import SetReplicas
from partitions.metadata.features import FORGETTING
from partitions.metadata.image import MetadataImage, PartitionInfo
from partitions.metadata.machine import decode_image, encode_image
from raftlog.errors import InvalidRequest, PreconditionFailed, UnknownPartition, UnknownTopic
from raftlog.types import TopicId
from tests.helpers.metadata_images import (
    applied,
    cluster,
    create,
    nodes,
    recovered,
    register,
    reported,
    set_replicas,
)

BEFORE, _ = applied(create("orders", (1, 2, 3), (2, 3, 4)), to=cluster(brokers=5))


def first(image: MetadataImage) -> PartitionInfo:
    return image.topics["orders"].partitions[0]


# requirement: F2
def test_a_target_is_kept_until_a_leader_reports_that_it_is_reached() -> None:
    image, _ = applied(set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=BEFORE)
    moving = first(image)
    assert (moving.replicas, moving.target, moving.added) == (nodes(1, 2, 3), nodes(2, 3, 4), nodes(4))
    assert moving.all_replicas == nodes(1, 2, 3, 4)
    assert moving.version == image.version
    assert image.topics["orders"].version == BEFORE.topics["orders"].version  # its ETag
    image, _ = applied(reported("orders", (2, 3, 4), 17), to=image)
    there = first(image)
    assert (there.replicas, there.target, there.membership_index) == (nodes(2, 3, 4), (), 17)
    assert there.all_replicas == nodes(2, 3, 4)
    assert not any(there.is_initial(node) for node in nodes(1, 2, 3, 4))


def test_the_order_of_a_target_is_kept_since_the_first_is_preferred() -> None:
    image, _ = applied(set_replicas("orders", (4, 3, 2), (1, 2, 3)), to=BEFORE)
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
        to=BEFORE,
    )
    late, _ = applied(reported("orders", (2, 3, 4), 17), to=image)
    assert late is image
    another_group, _ = applied(reported("orders", (2, 3, 4), 50, group=9), to=image)
    assert another_group is image


def test_a_report_of_an_earlier_target_does_not_end_a_later_one_that_names_the_same_brokers() -> None:
    """Else the metadata would say that nobody moves, and no leader would look at what its log says."""
    image, _ = applied(set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=BEFORE)
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
    image, _ = applied(set_replicas("orders", (4, 3, 2), (1, 2, 3)), to=BEFORE)
    report = reported("orders", (2, 3, 4), 17, target_version=first(image).version)
    image, _ = applied(report, to=image)
    assert applied(report, to=image)[0] is image


def test_a_report_of_a_step_leaves_the_target() -> None:
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)), reported("orders", (1, 2, 3, 4), 9), to=BEFORE
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
        to=replace(BEFORE, feature_level=FORGETTING),
    )
    assert first(image).possible_replicas == {1, 2, 3, 4, 5}
    there, _ = applied(reported("orders", (1, 2, 5), 20), to=image)
    assert first(there).possible_replicas == {1, 2, 5}


def test_a_replica_that_a_target_was_to_bring_back_is_remembered_too() -> None:
    level = replace(BEFORE, feature_level=FORGETTING)
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
        to=BEFORE,
    )
    assert first(image).added == nodes(5)


def test_going_back_calls_a_move_off_and_the_leader_reports_when_it_has() -> None:
    image, _ = applied(
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        set_replicas("orders", (1, 2, 3), (2, 3, 4)),
        to=BEFORE,
    )
    assert first(image).target == nodes(1, 2, 3)
    image, _ = applied(reported("orders", (1, 2, 3), -1), to=image)
    assert (first(image).target, first(image).added) == ((), ())
    assert first(image).is_initial(nodes(1)[0])


def test_a_plan_that_was_made_of_older_metadata_is_refused() -> None:
    image, _ = applied(set_replicas("orders", (1, 2, 3, 4), (1, 2, 3)), to=BEFORE)
    after, reply = applied(set_replicas("orders", (1, 2, 3, 5), (1, 2, 3)), to=image)
    assert isinstance(reply, PreconditionFailed)
    assert after is image


@pytest.mark.parametrize("wanted", [(), (1, 1, 2), (1, 2, 9)])
def test_what_no_planner_writes_changes_nothing(wanted: tuple[int, ...]) -> None:
    after, reply = applied(set_replicas("orders", wanted, (1, 2, 3)), to=BEFORE)
    assert isinstance(reply, InvalidRequest)
    assert after is BEFORE
    assert isinstance(applied(reported("orders", (), 5), to=BEFORE)[1], InvalidRequest)


def test_another_topic_of_that_name_and_a_partition_that_is_not_there_are_told() -> None:
    command = set_replicas("orders", (1, 2), (1, 2, 3), TopicId("9" * 32))
    assert isinstance(applied(command, to=BEFORE)[1], UnknownTopic)
    command = SetReplicas("orders", BEFORE.topics["orders"].topic_id, 7, nodes(1, 2), nodes(1, 2, 3))
    assert isinstance(applied(command, to=BEFORE)[1], UnknownPartition)


# requirement: F6
def test_a_recovered_partition_is_another_group_with_one_replica_and_a_record_of_it() -> None:
    image, _ = applied(recovered("orders", 1, 2, 3), to=BEFORE)
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
    image, _ = applied(*changes, recovered("orders", 4, 2, 3), to=replace(BEFORE, feature_level=FORGETTING))
    assert first(image).replicas == nodes(4)
    before = replace(BEFORE, feature_level=FORGETTING - 1)
    _, reply = applied(*changes, recovered("orders", 4, 2, 3), to=before)
    assert isinstance(reply, InvalidRequest)


def test_nobody_is_recovered_from_a_broker_without_a_replica() -> None:
    after, reply = applied(recovered("orders", 5, 1, 2, 3), to=BEFORE)
    assert isinstance(reply, InvalidRequest)
    assert after is BEFORE


# requirement: F6
def test_a_broker_with_another_disk_is_a_newcomer_wherever_it_had_a_replica() -> None:
    image, _ = applied(register(2, disk_id="a"), to=BEFORE)
    assert first(image).is_initial(nodes(2)[0])
    image, _ = applied(register(2, disk_id="a", incarnation="second"), to=image)
    assert first(image).is_initial(nodes(2)[0])
    image, _ = applied(register(2, disk_id="b", incarnation="third"), to=image)
    assert [p.added for p in image.topics["orders"].partitions] == [nodes(2), nodes(2)]
    assert not first(image).is_initial(nodes(2)[0])
    assert first(image).is_initial(nodes(1)[0])


def test_a_topic_that_is_created_after_a_recovery_has_groups_of_its_own() -> None:
    image, _ = applied(recovered("orders", 1, 2, 3), create("later", (1, 2, 3), number=2), to=BEFORE)
    groups = [partition.group_id for topic in image.topics.values() for partition in topic.partitions]
    assert len(groups) == len(set(groups)) == 3
