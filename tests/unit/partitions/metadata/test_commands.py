"""Commands survive being bytes, bytes that are no command do no harm, and feature levels only rise."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from partitions.metadata.commands import (
    COMMANDS,
    AddPartitions,
    AdmitBroker,
    AllocateProducerIds,
    AlterTopicConfig,
    Command,
    DecommissionBroker,
    DecommissionPartitions,
    DeleteTopic,
    DrainBroker,
    EndPlan,
    FenceBroker,
    ForgetBroker,
    RecoveredUnsafely,
    RemovePartition,
    ReplicasChanged,
    SetClusterId,
    SetFeatureLevel,
    StartPlan,
    UnfenceBroker,
    UnknownCommand,
    command_batch,
    decode,
    encode,
)
from partitions.metadata.features import HTTPS, NEWEST
from partitions.metadata.image import MetadataImage, PlannedMove
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.planner import PlannerLimits, plan
from raftlog.errors import Conflict, InvalidRequest, InvariantViolated
from raftlog.records.batch import check_batch
from raftlog.records.reader import read_records
from raftlog.types import GroupId, NodeId, Offset
from tests.helpers.metadata_images import THIS_TOPIC, applied, cluster, create, register, set_replicas

EVERY_COMMAND: list[Command] = [
    register(1, rack="a"),
    FenceBroker(NodeId(1), "first"),
    UnfenceBroker(NodeId(1), "first"),
    DrainBroker(NodeId(1), False),
    DecommissionBroker(NodeId(1)),
    AdmitBroker("a" * 32, NodeId(4), "http://log4.example:7070", "log4.example", 7170, "a", True),
    ForgetBroker(NodeId(4), "first"),
    create("orders", (1, 2, 3), (2, 3, 1), retention_ms=5),
    DeleteTopic("orders", 7),
    AlterTopicConfig("orders", {"retention.ms": None, "segment.bytes": 4096}, None),
    AddPartitions("orders", THIS_TOPIC, 2, ((NodeId(3), NodeId(1)),), 7, 5),
    DecommissionPartitions("orders", THIS_TOPIC, 3, 2, 5, 7),
    RemovePartition("orders", THIS_TOPIC, 2, GroupId(9), 5, Offset(77), Offset(70)),
    AllocateProducerIds(1000),
    SetClusterId("c", "b"),
    set_replicas("orders", (2, 3, 4), (1, 2, 3)),
    ReplicasChanged("orders", THIS_TOPIC, 0, GroupId(1), (NodeId(2), NodeId(3)), 17, 9),
    RecoveredUnsafely(
        "orders", THIS_TOPIC, 0, GroupId(1), NodeId(1), (NodeId(2), NodeId(3)), 4, 99, 90, 1_000
    ),
    SetFeatureLevel(2),
    StartPlan((PlannedMove("orders", THIS_TOPIC, 0, (NodeId(1),), (NodeId(2),)),), 7, True),
    EndPlan(8),
]


def test_every_command_is_read_as_it_was_written() -> None:
    assert {type(command) for command in EVERY_COMMAND} == set(COMMANDS)
    assert [decode(encode(command)) for command in EVERY_COMMAND] == EVERY_COMMAND


def test_equal_commands_give_equal_bytes() -> None:
    one = AlterTopicConfig("orders", {"a": 1, "b": 2})
    other = AlterTopicConfig("orders", {"b": 2, "a": 1})
    assert encode(one) == encode(other)


def test_the_bytes_of_a_command_stay_what_they_are() -> None:
    assert msgspec.msgpack.decode(encode(create("orders", (1, 2), number=10, retention_ms=5))) == [
        1,
        ["create_topic", "orders", "0" * 31 + "a", [[1, 2]], {"retention.ms": 5}],
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1, ["no_such_command", 1]]),
        msgspec.msgpack.encode([2, ["allocate_producer_ids", 1]]),
        msgspec.msgpack.encode([1, ["allocate_producer_ids", "one"]]),
        msgspec.msgpack.encode([1, ["create_topic", "orders"]]),
        encode(AllocateProducerIds(1)) + b"\x00",
    ],
)
def test_what_is_not_understood_is_an_unknown_command(value: bytes | None) -> None:
    assert isinstance(decode(value), UnknownCommand)


def test_fields_that_a_later_version_adds_at_the_end_do_not_confuse_this_one() -> None:
    value = msgspec.msgpack.encode([1, ["allocate_producer_ids", 5, "new"]])
    assert decode(value) == AllocateProducerIds(5)


@given(st.binary(max_size=200))
def test_no_bytes_make_decoding_raise(value: bytes) -> None:
    decode(value)


def test_a_command_is_the_value_of_the_one_record_of_a_sound_batch() -> None:
    batch = command_batch(AllocateProducerIds(5), timestamp_ms=1000)
    check_batch(batch)
    (record,) = read_records(batch)
    assert decode(record.value) == AllocateProducerIds(5)


def at_level(level: int) -> MetadataImage:
    return applied(SetClusterId("c", "b", level), to=cluster())[0]


def test_a_level_rises_and_never_falls() -> None:
    image, _ = applied(SetFeatureLevel(2), to=at_level(1))
    assert image.feature_level == 2
    after, _ = applied(SetFeatureLevel(1), to=image)
    assert after is image


def test_a_broker_below_the_level_is_refused_with_the_remedy() -> None:
    old = register(4)
    assert old.feature_level == 1, "a release without levels names none"
    assert plan(old, at_level(1), PlannerLimits()) == old
    with pytest.raises(InvalidRequest, match="broker 4 has feature level 1, but the cluster has 2: install"):
        plan(old, at_level(2), PlannerLimits())
    new = structs.replace(old, feature_level=2)
    assert plan(new, at_level(2), PlannerLimits()) == new


def test_a_broker_without_a_plain_listener_needs_the_level_of_https() -> None:
    secured = structs.replace(register(4), http_url="", feature_level=NEWEST, https_url="https://b4:7443")
    with pytest.raises(Conflict, match=f"needs feature level {HTTPS}, but the cluster has {HTTPS - 1}"):
        plan(secured, at_level(HTTPS - 1), PlannerLimits())
    assert plan(secured, at_level(HTTPS), PlannerLimits()) == secured


def test_the_snapshot_has_the_level_as_its_format() -> None:
    assert msgspec.msgpack.decode(encode_image(at_level(1)))[0] == 1, "the release before reads it"
    assert msgspec.msgpack.decode(encode_image(at_level(2)))[0] == 2, "the release before refuses it"
    assert decode_image(encode_image(at_level(2))).feature_level == 2


def test_a_snapshot_of_a_later_release_is_refused() -> None:
    fields = msgspec.msgpack.decode(encode_image(at_level(NEWEST)))
    fields[0] = NEWEST + 1
    with pytest.raises(InvariantViolated, match="install the release that wrote it"):
        decode_image(msgspec.msgpack.encode(fields))
