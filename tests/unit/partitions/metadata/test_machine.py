"""Commands and the metadata: their effect, also before they are committed; none breaks it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.hosting.hosted_metadata import image_ahead
from partitions.metadata.commands import (
    AllocateProducerIds,
    AlterTopicConfig,
    Command,
    DecommissionBroker,
    DeleteTopic,
    DrainBroker,
    FenceBroker,
    SetClusterId,
    UnfenceBroker,
    UnknownCommand,
    command_batch,
)
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.machine import (
    DELETED_REMEMBERED,
    MetadataMachine,
    apply_command,
    decode_image,
    encode_image,
)
from raftlog.core.ready import HardState
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    InvariantViolated,
    PreconditionFailed,
    TopicExists,
    TopicNotFound,
)
from raftlog.records.batch import stamp
from raftlog.records.control import leader_change_batch
from raftlog.testing.log_changes import save_checkpoint
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Index, NodeId, Term, TopicId
from tests.helpers.metadata_images import (
    add_partitions,
    applied,
    cluster,
    create,
    creation_id,
    meant,
    recovered,
    register,
    reported,
    set_replicas,
)
from tests.helpers.profiled import opcodes_of

ROWS = ((1, 2, 3), (2, 3, 1))


def feed(machine: MetadataMachine, *commands: Command, base: int = 0) -> list[object]:
    """Apply commands as the committed batches they are."""
    replies: list[object] = []
    for offset, command in enumerate(commands, base):
        now = meant(command, machine.image)
        assert not isinstance(now, UnknownCommand)
        batch = command_batch(now, timestamp_ms=1000)
        replies.append(
            machine.apply(stamp(batch.data, base_offset=offset, leader_epoch=1, append_time_ms=None))
        )
    return replies


# requirement: ST3
def test_a_topic_is_kept_with_its_partitions_configuration_and_replicas() -> None:
    image, topic = applied(create("orders", *ROWS, retention_ms=5), to=cluster())
    assert image.topics["orders"] is topic
    assert [(p.partition, p.group_id, p.replicas) for p in image.topics["orders"].partitions] == [
        (0, 1, (1, 2, 3)),
        (1, 2, (2, 3, 1)),
    ]
    assert image.topics["orders"].config == {"retention.ms": 5}
    assert image.topics["orders"].version == image.version == 4


# requirement: T1
def test_creating_a_topic_twice_is_a_conflict_and_changes_nothing() -> None:
    before, _ = applied(create("orders", *ROWS), to=cluster())
    after, reply = applied(create("orders", (3, 1, 2), number=2), to=before)
    assert isinstance(reply, TopicExists)
    assert after is before


def test_asking_again_for_the_same_topic_gives_the_topic_that_was_made() -> None:
    before, first = applied(create("orders", *ROWS), to=cluster())
    after, again = applied(create("orders", *ROWS), to=before)
    assert again is first
    assert after is before


def test_group_ids_are_never_used_twice() -> None:
    image, _ = applied(create("a", *ROWS), DeleteTopic("a"), create("a", *ROWS, number=2), to=cluster())
    assert [p.group_id for p in image.topics["a"].partitions] == [3, 4]
    assert image.topics["a"].creation_id == creation_id(2)


def test_a_creation_repeated_after_the_topic_was_deleted_makes_no_topic() -> None:
    before, _ = applied(create("a", *ROWS), DeleteTopic("a"), to=cluster())
    after, reply = applied(create("a", *ROWS), to=before)
    assert isinstance(reply, Conflict)
    assert "has been deleted since" in str(reply)
    assert after is before
    assert decode_image(encode_image(before)).deleted == (creation_id(1),)


def test_as_many_deleted_creations_are_remembered_as_promised_and_later_ones_get_another_id() -> None:
    image, _ = applied(create("a", *ROWS), DeleteTopic("a"), to=cluster())
    for number in range(2, DELETED_REMEMBERED + 2):
        assert isinstance(applied(create("a", *ROWS), to=image)[1], Conflict)
        image, _ = applied(create("b", (1, 2, 3), number=number), DeleteTopic("b"), to=image)
    assert len(image.deleted) == DELETED_REMEMBERED
    image, again = applied(create("a", *ROWS), to=image)
    assert isinstance(again, TopicInfo)
    assert again.version > DELETED_REMEMBERED


def test_a_topic_id_is_of_one_command_of_one_metadata_log() -> None:
    """Whatever the request: another index, another log and another request give another id."""

    def made(bootstrap_id: str, version: int, number: int) -> str:
        image, _ = applied(SetClusterId("c", bootstrap_id), register(1), register(2), register(3))
        _, topic = apply_command(image, create("a", *ROWS, number=number), version)
        assert isinstance(topic, TopicInfo)
        assert len(topic.topic_id) == 32
        return topic.topic_id

    ids = [made("b", 5, 1), made("b", 6, 1), made("d", 5, 1), made("b", 5, 2)]
    assert len(set(ids)) == 4
    assert made("b", 5, 1) == ids[0]


@pytest.mark.parametrize(
    "refused",
    [
        create("orders"),
        create("orders", ()),
        create("orders", (1, 1, 2)),
        create("orders", (1, 2, 3), (1, 2)),
        create("orders", (1, 2, 9)),
        create("../orders", (1, 2, 3)),
        create("", (1, 2, 3)),
        create("orders", (1, 2, 3), number=1 << 130),
    ],
)
def test_a_topic_that_no_planner_writes_is_refused_and_changes_nothing(refused: Command) -> None:
    before = cluster()
    after, reply = applied(refused, to=before)
    assert isinstance(reply, InvalidRequest)
    assert after is before


def test_a_topic_is_deleted_only_at_the_version_that_was_seen() -> None:
    before, _ = applied(create("orders", *ROWS), to=cluster())
    assert isinstance(applied(DeleteTopic("orders", 3), to=before)[1], PreconditionFailed)
    after, reply = applied(DeleteTopic("orders", 4), to=before)
    assert reply == after.version == 5
    assert "orders" not in after.topics
    assert isinstance(applied(DeleteTopic("orders"), to=after)[1], TopicNotFound)


def test_a_configuration_is_changed_key_by_key_and_only_at_the_version_that_was_seen() -> None:
    before, _ = applied(create("orders", *ROWS, retention_ms=5, segment_bytes=4096), to=cluster())
    change = AlterTopicConfig("orders", {"retention.ms": None, "retention.bytes": 9}, 4)
    after, _ = applied(change, to=before)
    assert after.topics["orders"].config == {"segment.bytes": 4096, "retention.bytes": 9}
    assert after.topics["orders"].version == 5
    assert before.topics["orders"].config == {"retention.ms": 5, "segment.bytes": 4096}
    assert isinstance(applied(change, to=after)[1], PreconditionFailed)


# requirement: F4
def test_added_partitions_are_new_groups_and_the_others_stay_as_they_are() -> None:
    before, _ = applied(create("orders", *ROWS), create("bills", (1,), number=2), to=cluster())
    after, topic = applied(add_partitions("orders", 2, (3, 1, 2), (1, 2, 3)), to=before)
    assert after.topics["orders"] is topic
    assert [(p.partition, p.group_id, p.replicas) for p in after.topics["orders"].partitions[2:]] == [
        (2, 4, (3, 1, 2)),
        (3, 5, (1, 2, 3)),
    ]
    assert after.topics["orders"].partitions[:2] == before.topics["orders"].partitions
    assert after.topics["bills"] is before.topics["bills"]
    assert after.topics["orders"].version == after.version
    assert after.next_group_id == 6


# requirement: F4
def test_of_two_administrators_who_add_partitions_at_once_one_adds_them() -> None:
    first, second = add_partitions("orders", 2, (3, 1, 2)), add_partitions("orders", 2, (2, 1, 3))
    once, _ = applied(create("orders", *ROWS), first, to=cluster())
    twice, reply = applied(second, to=once)
    assert twice is once
    assert reply is once.topics["orders"]
    more, reply = applied(add_partitions("orders", 2, (1, 2, 3), (1, 2, 3)), to=once)
    assert more is once
    assert isinstance(reply, PreconditionFailed)
    assert "has 3 partitions, not 2" in str(reply)


def test_partitions_are_added_to_the_topic_and_the_version_that_were_meant() -> None:
    before, _ = applied(create("orders", *ROWS), to=cluster())
    for refused, error in (
        (add_partitions("orders", 2, (1, 2, 3), version=3), PreconditionFailed),
        (add_partitions("orders", 2, (1, 2, 3), topic_id=TopicId("0" * 32)), TopicNotFound),
        (add_partitions("bills", 2, (1, 2, 3)), TopicNotFound),
        (add_partitions("orders", 2, (1, 2, 9)), InvalidRequest),
        (add_partitions("orders", 2, (1, 1, 2)), InvalidRequest),
        (add_partitions("orders", 2), InvalidRequest),
    ):
        after, reply = applied(refused, to=before)
        assert after is before
        assert isinstance(reply, error), reply
    after, _ = applied(add_partitions("orders", 2, (1, 2, 3), version=4), to=before)
    assert len(after.topics["orders"].partitions) == 3


# requirement: ST4
def test_a_broker_that_starts_again_is_alive_with_its_new_incarnation() -> None:
    image, _ = applied(FenceBroker(NodeId(1), "first"), to=cluster())
    assert not image.brokers[NodeId(1)].alive
    image, _ = applied(register(1, incarnation="second"), to=image)
    assert image.brokers[NodeId(1)].alive
    late, reply = applied(register(1, replaces=""), to=image)  # of the process before, which had asked first
    assert isinstance(reply, PreconditionFailed)
    assert late is image
    image, reply = applied(FenceBroker(NodeId(1), "first"), to=image)
    assert isinstance(reply, PreconditionFailed)
    assert image.brokers[NodeId(1)].alive


def test_a_draining_broker_stays_so_when_it_starts_again() -> None:
    image, _ = applied(DrainBroker(NodeId(1)), register(1, incarnation="second"), to=cluster())
    assert image.brokers[NodeId(1)].draining


# requirement: F3
def test_a_decommissioned_broker_stays_so_until_it_is_recommissioned() -> None:
    image, _ = applied(DecommissionBroker(NodeId(1)), register(1, incarnation="second"), to=cluster())
    image, _ = applied(DrainBroker(NodeId(1), False), to=image)
    assert (image.brokers[NodeId(1)].decommissioned, image.brokers[NodeId(1)].draining) == (True, True)
    again, _ = applied(DecommissionBroker(NodeId(1)), to=image)
    assert again is image
    image, _ = applied(DecommissionBroker(NodeId(1), False), to=image)
    assert (image.brokers[NodeId(1)].decommissioned, image.brokers[NodeId(1)].draining) == (False, False)


def test_recommissioning_ends_draining() -> None:
    image, _ = applied(DrainBroker(NodeId(1)), DecommissionBroker(NodeId(1), False), to=cluster())
    assert not image.brokers[NodeId(1)].draining


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    image, first = applied(AllocateProducerIds(10), to=cluster())
    _, second = applied(AllocateProducerIds(5), to=image)
    assert (first, second) == (range(1, 11), range(11, 16))


def test_the_first_cluster_id_is_the_only_one() -> None:
    image, _ = applied(SetClusterId("c", "b"), SetClusterId("d", "e"))
    assert (image.cluster_id, image.bootstrap_id, image.version) == ("c", "b", 1)


def test_a_command_from_the_future_changes_nothing() -> None:
    before = cluster()
    after, reply = applied(UnknownCommand("no such command"), to=before)
    assert isinstance(reply, InvalidRequest)
    assert after is before


def test_the_version_is_one_past_the_last_command_that_changed_something() -> None:
    machine = MetadataMachine()
    seen: list[int] = []
    machine.subscribe(lambda image: seen.append(image.version))
    feed(machine, register(1), register(1), register(2))
    assert machine.image.version == 3
    assert seen == [1, 3]


def test_a_leader_change_record_changes_nothing() -> None:
    machine = MetadataMachine()
    feed(machine, register(1))
    before = machine.image
    machine.apply(
        leader_change_batch(base_offset=Index(1), leader_epoch=Term(2), leader=NodeId(1), timestamp_ms=1000)
    )
    assert machine.image is before


def test_a_snapshot_is_the_same_bytes_on_every_replica_and_gives_the_same_image() -> None:
    ids = [register(number) for number in (1, 2, 3)]
    one, _ = applied(*ids, create("a", *ROWS, b_c=1, a_b=2), create("b", *ROWS, number=2))
    restored = MetadataMachine()
    restored.restore(encode_image(one))
    assert restored.image == one
    assert restored.snapshot() == encode_image(one)
    other = MetadataImage(
        cluster_id=one.cluster_id,
        version=one.version,
        brokers=dict(reversed(one.brokers.items())),
        topics=dict(reversed(one.topics.items())),
        next_group_id=one.next_group_id,
    )
    assert encode_image(other) == encode_image(one)


def test_an_empty_snapshot_is_the_image_at_birth() -> None:
    machine = MetadataMachine()
    feed(machine, register(1))
    machine.restore(b"")
    assert machine.image == MetadataImage()


def test_a_damaged_snapshot_stops_the_process() -> None:
    with pytest.raises(InvariantViolated):
        decode_image(b"\x01\x02")


COMMANDS = st.one_of(
    st.builds(register, st.integers(1, 4), incarnation=st.sampled_from(["first", "second"])),
    st.builds(FenceBroker, st.integers(1, 5), st.sampled_from(["first", "second"])),
    st.builds(UnfenceBroker, st.integers(1, 5), st.sampled_from(["first", "second"])),
    st.builds(DrainBroker, st.integers(1, 5), st.booleans()),
    st.builds(DecommissionBroker, st.integers(1, 5), st.booleans()),
    st.builds(
        create,
        st.sampled_from(["a", "b", "c", ".."]),
        st.lists(st.integers(1, 4), max_size=3),
        st.lists(st.integers(1, 4), max_size=3),
        number=st.integers(1, 3),
    ),
    st.builds(DeleteTopic, st.sampled_from(["a", "b"]), st.none() | st.integers(0, 20)),
    st.builds(
        AlterTopicConfig, st.sampled_from(["a", "b"]), st.just({"retention.ms": None, "segment.ms": 3})
    ),
    st.builds(AllocateProducerIds, st.integers(-1, 10)),
    st.builds(
        set_replicas,
        st.sampled_from(["a", "b"]),
        st.lists(st.integers(1, 5), max_size=4),
        st.lists(st.integers(1, 4), max_size=3),
    ),
    st.builds(
        reported,
        st.sampled_from(["a", "b"]),
        st.lists(st.integers(1, 4), max_size=3),
        st.integers(-1, 9),
        st.integers(1, 4),
    ),
    st.builds(
        recovered, st.sampled_from(["a", "b"]), st.integers(1, 4), st.integers(1, 4), group=st.integers(1, 4)
    ),
    st.builds(
        add_partitions,
        st.sampled_from(["a", "b"]),
        st.integers(0, 4),
        st.lists(st.integers(1, 4), max_size=3),
        version=st.none() | st.integers(0, 20),
    ),
    st.builds(SetClusterId, st.text(max_size=2), st.text(max_size=2)),
)


@given(st.lists(COMMANDS, max_size=30))
@settings(max_examples=40)
def test_whatever_is_in_the_log_two_replicas_agree_and_a_snapshot_in_between_is_not_noticed(
    commands: list[Command],
) -> None:
    one, other = MetadataMachine(), MetadataMachine()
    versions = [0]
    one.subscribe(lambda image: versions.append(image.version))
    for offset, command in enumerate(commands):
        feed(one, command, base=offset)
        feed(other, command, base=offset)
        restarted = MetadataMachine()
        restarted.restore(other.snapshot())
        other = restarted
    assert one.image == other.image
    assert one.snapshot() == other.snapshot()
    assert versions == sorted(set(versions))
    groups = [p.group_id for topic in one.image.topics.values() for p in topic.partitions]
    assert len(set(groups)) == len(groups)
    assert all(group < one.image.next_group_id for group in groups)


@given(st.lists(COMMANDS, max_size=30))
@settings(max_examples=80)
def test_a_topic_id_stands_for_one_log_a_partition_and_recoveries_of_it(commands: list[Command]) -> None:
    """Partitions of one number and topic id are one log: one group, or what recoveries have made of it."""
    machine = MetadataMachine()
    known: dict[tuple[str, int], PartitionInfo] = {}
    feed(machine, register(1), register(2), register(3))

    def look(image: MetadataImage) -> None:
        for topic in image.topics.values():
            for partition in topic.partitions:
                before = known.setdefault((topic.topic_id, partition.partition), partition)
                assert partition.continues(before)
                known[topic.topic_id, partition.partition] = partition

    machine.subscribe(look)
    for offset, command in enumerate(commands, 3):
        feed(machine, command, base=offset)


def test_a_command_costs_little_beside_ten_thousand_partitions() -> None:
    def instructions(topics: int) -> int:
        image = cluster()
        for number in range(topics):
            image, _ = apply_command(
                image, create(f"topic-{number}", *[(1, 2, 3)] * 10, number=number), number + 4
            )
        one_more = create("one-more", (1, 2, 3), number=topics)
        return opcodes_of(lambda: apply_command(image, one_more, topics + 4))

    assert instructions(1_000) < 1.5 * instructions(10)


LOGGED: Sequence[Command] = [register(1), register(2), create("orders", (1, 2)), register(3)]


def log_of(commands: Sequence[Command]) -> MemoryLog:
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    for index, command in enumerate(commands):
        batch = command_batch(command, timestamp_ms=0)
        log.append([stamp(batch.data, base_offset=index, leader_epoch=1, append_time_ms=0)])
    return log


def test_what_is_not_known_to_be_committed_counts() -> None:
    # requirement: F2
    image = image_ahead(log_of(LOGGED))
    assert {broker.rpc_port for broker in image.brokers.values()} == {9001, 9002, 9003}
    assert {*image.topics} == {"orders"}


def test_it_begins_with_the_newest_state_that_was_kept() -> None:
    log = log_of(LOGGED)
    kept, _ = applied(register(7), to=MetadataImage())
    save_checkpoint(log, Index(2), encode_image(kept))
    assert {*image_ahead(log).brokers} == {7, 3}


def test_an_empty_log_names_nobody() -> None:
    assert image_ahead(MemoryLog()) == MetadataImage()


# requirement: RP1
@pytest.mark.parametrize(
    ("rows", "target", "factor"),
    [
        ([(1,)], (1, 2, 3), 3),
        ([(1,)], (1, 2), 1),
        ([(1,), (2,)], (1, 2, 3), 1),
        ([(1, 2, 3)], (1,), 1),
        ([(1, 2, 3)], (1, 2), 1),
        ([(1, 2, 3), (2, 3, 1)], (1,), 3),
    ],
)
def test_the_factor_follows_once_all_partitions_have_more_replicas_or_fewer(
    rows: list[tuple[int, ...]], target: tuple[int, ...], factor: int
) -> None:
    moved = set_replicas("a", target, rows[0]), reported("a", target, 5)
    image, _ = applied(create("a", *rows), *moved, to=cluster())
    assert image.topics["a"].replication_factor == factor


# requirement: F6
def test_the_factor_stays_when_replicas_are_lost() -> None:
    image, _ = applied(create("a", (1, 2, 3)), recovered("a", 1, 2, 3), to=cluster())
    assert image.topics["a"].replication_factor == 3
