"""State machine of the metadata group: each command makes a new image from the current image.

Decides: which commands are carried out, topic and group ids, and which of two requests for one name gets the
name. Leaves to others: good choices (``planner``), the order of commands (Raft).

Total and deterministic: each command in a committed batch is carried out, or is answered with an error and
changes nothing. Images are immutable; a new image shares all unchanged parts, so a command copies at most one
dict. ``image.version`` is one more than the index of the last command that changed the image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

import msgspec

from partitions.metadata import broker_commands, partition_commands, replica_commands
from partitions.metadata.commands import (
    AddPartitions,
    AdmitBroker,
    AllocateProducerIds,
    AlterTopicConfig,
    Command,
    CreateTopic,
    DecommissionBroker,
    DecommissionPartitions,
    DeleteTopic,
    DrainBroker,
    EndPlan,
    FenceBroker,
    ForgetBroker,
    RecoveredUnsafely,
    RegisterBroker,
    RemovePartition,
    ReplicasChanged,
    SetClusterId,
    SetFeatureLevel,
    SetReplicas,
    StartPlan,
    UnfenceBroker,
    UnknownCommand,
    decode,
)
from partitions.metadata.features import FIRST, NEWEST
from partitions.metadata.image import BrokerInfo, MetadataImage, Plan, TopicInfo
from partitions.metadata.names import check_name, is_id
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    InvariantViolated,
    PreconditionFailed,
    RaftlogError,
    TopicExists,
    TopicNotFound,
)
from raftlog.records.batch import Batch
from raftlog.records.reader import read_records
from raftlog.types import GroupId, NodeId, ProducerId, TopicId

DELETED_REMEMBERED: Final = 1000  # creation ids of deleted topics; a late repeated creation is refused

Reply = TopicInfo | BrokerInfo | range | int | RaftlogError
"""Result of a command: the topic or broker after the command, a block of ids, the metadata version, or an
error.
"""


class MetadataMachine:
    """The state machine of the metadata group."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[Callable[[MetadataImage], None]] = []

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call ``listener`` with every new image. The listener must neither block nor raise."""
        self._listeners.append(listener)

    def apply(self, entry: Batch) -> Reply:
        """Apply one committed batch, and return the reply to its last command."""
        before = self.image
        reply: Reply = before.version
        if entry.header.is_control:
            return reply
        try:
            records = read_records(entry)
        except RaftlogError as error:
            return error  # all replicas fail on these bytes alike
        for record in records:
            self.image, reply = apply_command(self.image, decode(record.value), record.offset + 1)
        if self.image is not before:
            self._tell()
        return reply

    def snapshot(self) -> bytes:
        """Encode the image and a format version. All replicas give equal bytes for equal images."""
        return encode_image(self.image)

    def restore(self, snapshot: bytes) -> None:
        """Replace the image by the image in ``snapshot``; empty bytes stand for the initial image."""
        self.restoring(snapshot)()

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode an image without changing the machine, as ``StateMachine.restoring`` requires."""
        image = decode_image(snapshot) if snapshot else MetadataImage()

        def become() -> None:
            self.image = image
            self._tell()

        return become

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self.image)


def apply_command(
    image: MetadataImage, command: Command | UnknownCommand, version: int
) -> tuple[MetadataImage, Reply]:
    """The image after a command, and the reply to its proposer. A changed image has the given ``version``."""
    match command:
        case RegisterBroker():
            return broker_commands.register(image, command, version)
        case FenceBroker(broker_id, incarnation):
            return broker_commands.fence(image, version, broker_id, incarnation, alive=False)
        case UnfenceBroker(broker_id, incarnation):
            return broker_commands.fence(image, version, broker_id, incarnation, alive=True)
        case DrainBroker(broker_id, draining):
            return broker_commands.drain(image, version, broker_id, draining=draining)
        case DecommissionBroker(broker_id, decommissioned):
            return broker_commands.decommission(image, version, broker_id, decommissioned=decommissioned)
        case AdmitBroker():
            return broker_commands.admit(image, command, version)
        case ForgetBroker():
            return broker_commands.forget(image, command, version)
        case CreateTopic():
            return _create_topic(image, command, version)
        case DeleteTopic():
            return _delete_topic(image, command, version)
        case AlterTopicConfig():
            return _alter_topic(image, command, version)
        case AddPartitions():
            return _add_partitions(image, command, version)
        case DecommissionPartitions() | RemovePartition():
            return _shrink(image, command, version)
        case AllocateProducerIds(count):
            return _allocate_producer_ids(image, count, version)
        case SetClusterId():
            return _set_cluster_id(image, command, version)
        case SetFeatureLevel(level):
            if level <= image.feature_level:
                return image, image.version
            return replace(image, feature_level=level, version=version), version
        case StartPlan():
            return _start_plan(image, command, version)
        case EndPlan(plan_version):
            if image.plan is None or image.plan.version != plan_version:
                return image, PreconditionFailed(f"plan {plan_version} has already ended", plan=plan_version)
            return replace(image, plan=None, version=version), version
        case SetReplicas():
            return replica_commands.set_replicas(image, command, version)
        case ReplicasChanged():
            return replica_commands.replicas_changed(image, command, version)
        case RecoveredUnsafely():
            return replica_commands.recovered_unsafely(image, command, version)
        case UnknownCommand(reason):
            return image, InvalidRequest(f"cannot decode the metadata command: {reason}")
        case _:
            assert_never(command)


def _set_cluster_id(image: MetadataImage, command: SetClusterId, version: int) -> tuple[MetadataImage, Reply]:
    if image.bootstrap_id:
        return image, image.version
    changed = replace(
        image,
        cluster_id=command.cluster_id,
        bootstrap_id=command.bootstrap_id,
        feature_level=command.feature_level,
        version=version,
    )
    return changed, version


def _start_plan(image: MetadataImage, command: StartPlan, version: int) -> tuple[MetadataImage, Reply]:
    if image.plan is not None:
        return image, Conflict(
            f"plan {image.plan.version} is in progress; wait for its end, or cancel it",
            plan=image.plan.version,
        )
    plan = Plan(version, command.moves, command.is_automatic)
    return replace(image, plan=plan, version=version), version


def _create_topic(image: MetadataImage, command: CreateTopic, version: int) -> tuple[MetadataImage, Reply]:
    exists = image.topics.get(command.name)
    if exists is not None:
        if exists.creation_id == command.creation_id:
            return image, exists  # a repeated request
        return image, TopicExists(f"topic {command.name!r} already exists", topic=command.name)
    if command.creation_id in image.deleted:
        return image, Conflict(
            f"this request created topic {command.name!r}, which has been deleted since; send a new request",
            topic=command.name,
        )
    refused = _refused(command) or _refused_rows(image, command.placement)
    if refused is not None:
        return image, refused
    topic = TopicInfo(
        name=command.name,
        topic_id=_new_topic_id(image, version, command.creation_id),
        replication_factor=len(command.placement[0]),
        partitions=partition_commands.new_partitions(image, 0, command.placement),
        config=command.config,
        version=version,
        creation_id=command.creation_id,
    )
    following = GroupId(image.next_group_id + len(command.placement))
    return replace(_with_topic(image, topic), next_group_id=following), topic


def _add_partitions(
    image: MetadataImage, command: AddPartitions, version: int
) -> tuple[MetadataImage, Reply]:
    """Add partitions to a topic.

    A topic that already has the resulting number of partitions is not changed.
    """
    found = _find_topic(image, command.name, command.topic_id)
    if isinstance(found, RaftlogError):
        return image, found
    count = len(found.partitions)
    if command.placement and count == command.expected + len(command.placement):
        return image, found
    if count != command.expected:
        return image, PreconditionFailed(
            f"topic {command.name!r} has {count} partitions, not {command.expected}; read it again",
            topic=command.name,
            partitions=count,
        )
    is_other = command.expected_shape not in (None, found.shape_version) or found.writable_partitions < count
    objection = partition_commands.shape_has_changed(found) if is_other else None
    objection = objection or _other_version(found, command.expected_version)
    if refused := objection or _refused_rows(image, command.placement):
        return image, refused
    added = partition_commands.new_partitions(image, count, command.placement, found.removed)
    topic = replace(found, partitions=(*found.partitions, *added), version=version, shape_version=version)
    following = GroupId(image.next_group_id + len(command.placement))
    return replace(_with_topic(image, topic), next_group_id=following), topic


def _shrink(
    image: MetadataImage, command: DecommissionPartitions | RemovePartition, version: int
) -> tuple[MetadataImage, Reply]:
    found = _find_topic(image, command.name, command.topic_id)
    if isinstance(found, RaftlogError):
        return image, found
    if isinstance(command, RemovePartition):
        return partition_commands.remove(image, found, command, version)
    objection = _other_version(found, command.expected_version)
    if objection is not None and found.writable_partitions != command.writable:
        return image, objection
    return partition_commands.decommission(image, found, command, version)


def _new_topic_id(image: MetadataImage, version: int, creation_id: str) -> TopicId:
    """Make a topic id that is unique to this command: it depends on the log's id and the command's index."""
    source = f"{image.bootstrap_id} {version} {creation_id}"
    return TopicId(hashlib.blake2b(source.encode(), digest_size=16).hexdigest())


def _refused(command: CreateTopic) -> InvalidRequest | None:
    """The error for an invalid topic name or creation id, or None.

    Names are checked because they become paths.
    """
    try:
        check_name(command.name, internal=True)
    except InvalidRequest as error:
        return error
    if not is_id(command.creation_id):
        return InvalidRequest("creation_id is not 32 hexadecimal digits", field="creation_id")
    return None


def _refused_rows(image: MetadataImage, placement: tuple[tuple[NodeId, ...], ...]) -> InvalidRequest | None:
    """The error unless all rows of ``placement`` are equally long and name different registered brokers."""
    if not placement or not placement[0]:
        return InvalidRequest("placement is empty, or a partition has no replicas", field="placement")
    factor = len(placement[0])
    for row in placement:
        if len(row) != factor or len(set(row)) != factor:
            return InvalidRequest(
                f"placement has the row {list(row)}; name {factor} different brokers", field="placement"
            )
        for broker in row:
            if broker not in image.brokers:
                return InvalidRequest(f"no broker {broker} is registered", field="placement")
    return None


def _delete_topic(image: MetadataImage, command: DeleteTopic, version: int) -> tuple[MetadataImage, Reply]:
    found = _expected_topic(image, command)
    if isinstance(found, RaftlogError):
        return image, found
    topics = dict(image.topics)
    del topics[command.name]
    deleted = (*image.deleted, found.creation_id)[-DELETED_REMEMBERED:]
    return replace(image, topics=topics, deleted=deleted, version=version), version


def _alter_topic(
    image: MetadataImage, command: AlterTopicConfig, version: int
) -> tuple[MetadataImage, Reply]:
    found = _expected_topic(image, command)
    if isinstance(found, RaftlogError):
        return image, found
    merged = {**found.config, **command.changes}
    config = {key: value for key, value in merged.items() if value is not None}
    if config == found.config:
        return image, found
    topic = replace(found, config=config, version=version)
    return _with_topic(image, topic), topic


def _expected_topic(
    image: MetadataImage, command: DeleteTopic | AlterTopicConfig
) -> TopicInfo | TopicNotFound | PreconditionFailed:
    found = _find_topic(image, command.name, command.topic_id)
    if isinstance(found, RaftlogError):
        return found
    return _other_version(found, command.expected_version) or found


def _find_topic(image: MetadataImage, name: str, topic_id: TopicId | None) -> TopicInfo | TopicNotFound:
    topic = image.topics.get(name)
    if topic is None or topic_id not in (None, topic.topic_id):
        return TopicNotFound(f"topic {name!r} does not exist, or was replaced by another topic", topic=name)
    return topic


def _other_version(topic: TopicInfo, expected_version: int | None) -> PreconditionFailed | None:
    if expected_version in (None, topic.version):
        return None
    return PreconditionFailed(
        f"topic {topic.name!r} is at version {topic.version}, not {expected_version}; read it again",
        topic=topic.name,
        version=topic.version,
    )


def _with_topic(image: MetadataImage, topic: TopicInfo) -> MetadataImage:
    return replace(image, topics={**image.topics, topic.name: topic}, version=topic.version)


def _allocate_producer_ids(image: MetadataImage, count: int, version: int) -> tuple[MetadataImage, Reply]:
    if count < 1:
        return image, InvalidRequest(f"count is {count}; ask for 1 or more ids", field="count")
    first = image.next_producer_id
    following = ProducerId(first + count)
    return replace(image, next_producer_id=following, version=version), range(first, following)


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    format: int  # the feature level, so that older releases refuse a snapshot with fields unknown to them
    cluster_id: str
    bootstrap_id: str
    version: int
    next_group_id: GroupId
    next_producer_id: ProducerId
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]
    deleted: tuple[str, ...] = ()
    plan: Plan | None = None
    forgotten: tuple[tuple[NodeId, str], ...] = ()


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(_Snapshot)


def encode_image(image: MetadataImage) -> bytes:
    """Encode an image as a snapshot; equal images give equal bytes."""
    return _ENCODER.encode(
        _Snapshot(
            image.feature_level,
            image.cluster_id,
            image.bootstrap_id,
            image.version,
            image.next_group_id,
            image.next_producer_id,
            tuple(image.brokers[broker] for broker in sorted(image.brokers)),
            tuple(image.topics[name] for name in sorted(image.topics)),
            image.deleted,
            image.plan,
            tuple(sorted(image.forgotten.items())),
        )
    )


def decode_image(data: bytes) -> MetadataImage:
    """Decode an image.

    Raises ``InvariantViolated`` for malformed bytes: their checksum was already found correct.
    """
    try:
        found = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise InvariantViolated(f"cannot decode the snapshot of the metadata: {error}") from None
    if not FIRST <= found.format <= NEWEST:
        raise InvariantViolated(
            f"the metadata's snapshot has format {found.format}; this broker reads up to {NEWEST}: install "
            "the release that wrote it"
        )
    return MetadataImage(
        cluster_id=found.cluster_id,
        bootstrap_id=found.bootstrap_id,
        version=found.version,
        next_group_id=found.next_group_id,
        next_producer_id=found.next_producer_id,
        brokers={broker.broker_id: broker for broker in found.brokers},
        topics={topic.name: topic for topic in found.topics},
        deleted=found.deleted,
        feature_level=found.format,
        plan=found.plan,
        forgotten=dict(found.forgotten),
    )
