"""Which partitions may be added, decommissioned, recommissioned and removed."""

from __future__ import annotations

from collections import Counter

import pytest

from partitions.metadata.commands import (
    AddPartitions,
    DecommissionPartitions,
    DrainBroker,
    FenceBroker,
    RemovePartition,
    SetFeatureLevel,
    UnfenceBroker,
)
from partitions.metadata.features import DECOMMISSIONED_PARTITIONS
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.machine import apply_command, decode_image, encode_image
from partitions.metadata.partition_commands import OFFSETS_RESERVED
from partitions.metadata.planner import NewPartitions, PlannerLimits, plan
from partitions.metadata.shrink_planner import ShrinkTopic
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    PartitionNotFound,
    PreconditionFailed,
    RaftlogError,
    TopicNotFound,
)
from raftlog.types import NodeId, Offset, TopicId
from tests.helpers.metadata_images import add_partitions, applied, cluster, create, recovered

ROWS = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
LIMITS = PlannerLimits()
LEVEL = SetFeatureLevel(DECOMMISSIONED_PARTITIONS)


def orders() -> MetadataImage:
    """Four partitions, and all brokers understand what happens to them."""
    image, _ = applied(create("orders", *ROWS), LEVEL, to=cluster())
    return image


def test_partitions_are_decommissioned_once_all_brokers_understand_it() -> None:
    """A broker of the release before would skip the command, and then know other partitions."""
    image, _ = applied(create("orders", *ROWS), to=cluster())
    with pytest.raises(Conflict, match="needs feature level 2"):
        shrunk(image, 3)


def wish(image: MetadataImage, *partitions: int, is_ended: bool = False, count: int = 0) -> ShrinkTopic:
    topic = image.topics["orders"]
    return ShrinkTopic(
        "orders",
        topic.topic_id,
        topic.writable_partitions,
        topic.shape_version,
        partitions,
        count,
        is_ended,
    )


def carried_out(image: MetadataImage, request: ShrinkTopic) -> MetadataImage:
    command = plan(request, image, LIMITS)
    image, reply = apply_command(image, command, image.version + 1)
    if isinstance(reply, RaftlogError):
        raise reply
    return image


def shrunk(image: MetadataImage, *partitions: int, is_ended: bool = False, count: int = 0) -> MetadataImage:
    return carried_out(image, wish(image, *partitions, is_ended=is_ended, count=count))


def removal(image: MetadataImage, number: int, *, end: int = 50) -> RemovePartition:
    """As the leader of the partition reports it."""
    topic = image.topics["orders"]
    partition = topic.partitions[number]
    return RemovePartition(
        "orders",
        topic.topic_id,
        number,
        partition.group_id,
        partition.decommission_version,
        Offset(end),
        Offset(end - 5),
    )


def removed(image: MetadataImage, number: int, *, end: int = 50) -> MetadataImage:
    image, reply = apply_command(image, removal(image, number, end=end), image.version + 1)
    assert isinstance(reply, TopicInfo), reply
    return image


def writable(image: MetadataImage) -> tuple[int, int]:
    topic = image.topics["orders"]
    return topic.writable_partitions, len(topic.partitions)


# requirement: F5
def test_the_last_partitions_take_no_records_and_stay_until_they_are_removed() -> None:
    before = orders()
    after = shrunk(before, 3, 2)
    assert writable(after) == (2, 4)
    topic = after.topics["orders"]
    assert [each.is_decommissioned for each in topic.partitions] == [False, False, True, True]
    assert [each.group_id for each in topic.partitions] == [
        each.group_id for each in before.topics["orders"].partitions
    ]
    assert topic.version == topic.shape_version == after.version
    assert decode_image(encode_image(after)) == after


# requirement: F5
def test_a_repeated_request_changes_nothing() -> None:
    once = shrunk(orders(), 3)
    assert shrunk(once, 3) is once
    by_count = shrunk(orders(), count=1)
    late = wish(orders(), count=1)
    assert carried_out(by_count, late) is by_count
    again = shrunk(once, 3, is_ended=True)
    assert writable(again) == (4, 4)
    assert shrunk(again, is_ended=True) is again


# requirement: F5
def test_a_request_that_comes_late_does_not_undo_a_later_one() -> None:
    before = orders()
    late = wish(before, 3)
    ended = shrunk(shrunk(before, 3), 3, is_ended=True)
    command = plan(late, ended, LIMITS)
    after, reply = apply_command(ended, command, ended.version + 1)
    assert after is ended
    assert isinstance(reply, PreconditionFailed)
    assert "4, of which 4 accept records" in str(reply)


# requirement: F5
def test_of_two_administrators_one_decommissions() -> None:
    before = orders()
    first, second = wish(before, count=1), wish(before, count=2)
    once = carried_out(before, first)
    assert carried_out(once, first) is once
    with pytest.raises(PreconditionFailed):
        carried_out(once, second)


@pytest.mark.parametrize(
    ("partitions", "count", "error", "text"),
    [
        ((1,), 0, InvalidRequest, "keys map to the partitions 0 to n - 1"),
        ((1, 3), 0, InvalidRequest, "send [1, 2, 3]"),
        ((0, 1, 2, 3), 0, InvalidRequest, "keep at least one, or delete the topic"),
        ((), 4, InvalidRequest, "send 1 to 3, or delete the topic"),
        ((), 9, InvalidRequest, "send 1 to 3, or delete the topic"),
        ((4,), 0, PartitionNotFound, "the partitions 0 to 3, not 4"),
    ],
)
def test_what_cannot_be_decommissioned_is_refused_with_a_remedy(
    partitions: tuple[int, ...], count: int, error: type[RaftlogError], text: str
) -> None:
    image = orders()
    with pytest.raises(error) as refused:
        plan(wish(image, *partitions, count=count), image, LIMITS)
    assert text in str(refused.value)


def test_partitions_of_internal_topics_stay() -> None:
    image, _ = applied(create("__offsets", *ROWS), LEVEL, to=cluster())
    request = ShrinkTopic("__offsets", image.topics["__offsets"].topic_id, 4, 0, (3,))
    with pytest.raises(InvalidRequest, match="is internal"):
        plan(request, image, LIMITS)


def test_only_decommissioned_partitions_are_recommissioned() -> None:
    image = shrunk(orders(), 2, 3)
    with pytest.raises(InvalidRequest, match=r"send \[2, 3\]"):
        shrunk(image, 3, is_ended=True)
    assert writable(shrunk(image, 2, is_ended=True)) == (3, 4)
    assert shrunk(image, 0, is_ended=True) is image, "it takes records"


# requirement: F5
def test_only_the_last_decommissioned_partition_is_removed() -> None:
    image = shrunk(orders(), 2, 3)
    for number in (1, 2):
        after, reply = apply_command(image, removal(image, number), image.version + 1)
        assert after is image
        assert isinstance(reply, PreconditionFailed)
    after = removed(image, 3)
    assert writable(after) == (2, 3)
    assert writable(removed(after, 2)) == (2, 2)
    again, reply = apply_command(after, removal(image, 3), after.version + 1)
    assert again is after, "its leader has not heard the answer"
    assert reply is after.topics["orders"]


# requirement: F5
def test_a_removal_decided_before_a_recommission_does_not_happen() -> None:
    image = shrunk(orders(), 3)
    report = removal(image, 3)
    ended = shrunk(image, is_ended=True)
    for current in (ended, shrunk(ended, 3)):
        after, reply = apply_command(current, report, current.version + 1)
        assert after is current
        assert isinstance(reply, PreconditionFailed)


# requirement: F5
def test_a_removed_partition_cannot_be_recommissioned() -> None:
    image = removed(shrunk(orders(), 3), 3)
    with pytest.raises(Conflict, match="has been removed with all its records"):
        shrunk(image, 3, is_ended=True)
    assert shrunk(image, 3) is image, "it is decommissioned for good"


# requirement: F4 F5 T5
def test_a_later_partition_of_the_number_begins_behind_the_removed_one() -> None:
    image = removed(shrunk(orders(), 3), 3, end=50)
    once, _ = applied(add_partitions("orders", 3, (1, 2, 3)), to=image)
    new = once.topics["orders"].partitions[3]
    assert new.first_offset == 50 + OFFSETS_RESERVED
    assert new.log_number == new.earlier_logs == 1
    assert not new.is_decommissioned
    assert not new.continues(orders().topics["orders"].partitions[3])
    twice = removed(shrunk(once, 3), 3, end=7)
    assert twice.topics["orders"].removed_partition(3).next_offset > new.first_offset  # type: ignore[union-attr]
    assert twice.topics["orders"].removed_partition(3).logs == 2  # type: ignore[union-attr]
    assert decode_image(encode_image(twice)) == twice


def test_a_recovered_partition_stays_decommissioned() -> None:
    image, _ = applied(
        create("orders", (1, 2, 3)), add_partitions("orders", 1, (1, 2, 3)), LEVEL, to=cluster()
    )
    image = removed(shrunk(image, 1), 1)
    image, _ = applied(add_partitions("orders", 1, (1, 2, 3)), to=image)
    image, _ = applied(recovered("orders", 1, 2, 3), to=image)
    before = image.topics["orders"].partitions[0]
    assert (before.log_number, before.earlier_logs) == (1, 0)
    added = image.topics["orders"].partitions[1]
    assert added.log_number == 1
    assert not added.continues(before)


# requirement: F4 F5
def test_nothing_is_added_while_partitions_are_decommissioned() -> None:
    image = shrunk(orders(), 3)
    topic = image.topics["orders"]
    request = NewPartitions("orders", topic.topic_id, 4, 1)
    with pytest.raises(Conflict, match="recommission them, which keeps their records, or wait"):
        plan(request, image, LIMITS)
    after, reply = applied(add_partitions("orders", 4, (1, 2, 3)), to=image)
    assert after is image
    assert isinstance(reply, PreconditionFailed)


# requirement: F4
def test_an_addition_that_comes_late_is_not_repeated_after_a_removal() -> None:
    before = orders()
    topic = before.topics["orders"]
    late = plan(NewPartitions("orders", topic.topic_id, 4, 1, None, topic.shape_version), before, LIMITS)
    image, _ = apply_command(before, late, before.version + 1)
    image = removed(shrunk(image, 4), 4)
    after, reply = apply_command(image, late, image.version + 1)
    assert after is image
    assert isinstance(reply, PreconditionFailed)


def test_a_command_that_no_planner_writes_changes_nothing() -> None:
    image = orders()
    topic = image.topics["orders"]
    for writable_partitions in (0, -1, 5):
        command = DecommissionPartitions("orders", topic.topic_id, 4, writable_partitions, 0)
        after, reply = apply_command(image, command, image.version + 1)
        assert after is image
        assert isinstance(reply, InvalidRequest)
    command = DecommissionPartitions("orders", TopicId("0" * 32), 4, 3, 0)
    assert apply_command(image, command, image.version + 1)[0] is image


THREE_ROWS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def addition(image: MetadataImage, count: int, expected: int = 3, name: str = "orders") -> NewPartitions:
    return NewPartitions(name, image.topics[name].topic_id, expected, count)


def planned(image: MetadataImage, count: int, expected: int = 3) -> AddPartitions:
    command = plan(addition(image, count, expected), image, LIMITS)
    assert isinstance(command, AddPartitions)
    return command


def refusal(image: MetadataImage, count: int, limits: PlannerLimits = LIMITS, **more: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        plan(addition(image, count, **more), image, limits)
    return caught.value


# requirement: F4 T3
def test_new_partitions_are_placed_evenly_beside_those_that_exist() -> None:
    image, _ = applied(create("orders", *THREE_ROWS), to=cluster(brokers=6))
    command = planned(image, 3)
    assert command.expected == 3
    held = Counter(node for row in command.placement for node in row)
    assert held == {4: 3, 5: 3, 6: 3}, "these hold nothing yet"
    assert Counter(row[0] for row in command.placement) == {4: 1, 5: 1, 6: 1}


# requirement: F4 RP11
def test_replicas_of_new_partitions_are_in_different_racks() -> None:
    racks = ("a", "a", "b", "b", "c", "c")
    image, _ = applied(create("orders", *THREE_ROWS), to=cluster(*racks))
    for row in planned(image, 6).placement:
        assert {racks[node - 1] for node in row} == {"a", "b", "c"}


# requirement: F4 F3
def test_draining_and_dead_brokers_get_no_new_partitions() -> None:
    image, _ = applied(create("orders", *THREE_ROWS), to=cluster(brokers=5))
    image, _ = applied(DrainBroker(NodeId(4)), FenceBroker(NodeId(5), "first"), to=image)
    assert {node for row in planned(image, 4).placement for node in row} == {1, 2, 3}
    image, _ = applied(FenceBroker(NodeId(1), "first"), to=image)
    refused = refusal(image, 1)
    assert "only 2 brokers take new replicas; start more brokers" in str(refused)
    assert refused.details["field"] == "count"
    image, _ = applied(UnfenceBroker(NodeId(5), "first"), to=image)
    assert {*planned(image, 1).placement[0]} == {2, 3, 5}


def test_a_repeated_request_is_planned_as_it_was_carried_out() -> None:
    image, _ = applied(create("orders", *THREE_ROWS), to=cluster(brokers=6))
    first = planned(image, 2)
    once, _ = applied(first, to=image)
    assert planned(once, 2) == first
    twice, reply = applied(planned(once, 2), to=once)
    assert twice is once
    assert reply is once.topics["orders"]


def test_limits_are_checked_with_a_remedy() -> None:
    image, _ = applied(create("orders", *THREE_ROWS), create("__offsets", (1,), number=2), to=cluster())
    for count in (0, -1, 9_998):
        refused = refusal(image, count)
        assert "add 1 to 9997" in str(refused)
        assert refused.details["field"] == "count"
    full = refusal(image, 2, PlannerLimits(replicas_per_broker_max=5))
    assert "the partitions need 6 replicas, but the cluster has room for 5 more" in str(full)
    assert "choose fewer partitions" in str(full)
    assert "is internal" in str(refusal(image, 1, name="__offsets"))
    with pytest.raises(TopicNotFound):
        plan(NewPartitions("orders", TopicId("0" * 32), 3, 1), image, LIMITS)


def test_new_partitions_could_not_be_written_to_with_too_few_replicas() -> None:
    image, _ = applied(create("orders", *THREE_ROWS, min_insync_replicas=4), to=cluster())
    refused = refusal(image, 1)
    assert refused.details["field"] == "config.min.insync.replicas"
