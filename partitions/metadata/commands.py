"""The content of the metadata log: one command is the value of one record in one batch.

Nothing is decided here. A command says what shall be, never how to find it out: placements,
creation ids and incarnations were chosen before it was written, so that every replica that applies
it arrives at the same metadata. ``[1, "create_topic", ...]`` is a command's form in msgpack: the
version of the encoding, then the command's name and its fields in order.

A later version adds fields with defaults at the end of a command, or commands with new names. A
reader that meets what it does not know has an ``UnknownCommand`` in hand, which changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

import msgspec

from partitions.metadata.image import PlannedMove
from raftlog.records.batch import Batch
from raftlog.records.builder import batch_of_command
from raftlog.types import GroupId, NodeId, Offset, TopicId

ENCODING_VERSION: Final = 1


class RegisterBroker(msgspec.Struct, frozen=True, array_like=True, tag="register_broker"):
    """Register a started broker process, if ``replaces`` is still the newest registered incarnation."""

    broker_id: NodeId
    incarnation: str
    http_url: str
    rpc_host: str
    rpc_port: int
    rack: str | None = None
    disk_id: str = ""
    replaces: str = ""  # the incarnation that was registered when this one asked
    feature_level: int = 1  # that its release understands; not kept


class FenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="fence_broker"):
    """A broker has been silent for too long. Says nothing about a later incarnation of it."""

    broker_id: NodeId
    incarnation: str


class UnfenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="unfence_broker"):
    """A broker that was taken for dead is heard from again."""

    broker_id: NodeId
    incarnation: str


class DrainBroker(msgspec.Struct, frozen=True, array_like=True, tag="drain_broker"):
    """No new replicas for this broker, or new ones again."""

    broker_id: NodeId
    draining: bool = True


class DecommissionBroker(msgspec.Struct, frozen=True, array_like=True, tag="decommission_broker"):
    """Move the replicas of this broker to others and place none there, or use it again as any other."""

    broker_id: NodeId
    decommissioned: bool = True


class AdmitBroker(msgspec.Struct, frozen=True, array_like=True, tag="admit_broker"):
    """A broker may join: from now on it is dialled at this address. It registers once it has started."""

    admission_id: str  # of the request: a repeated one admits no other broker
    broker_id: NodeId  # 0 in a request: the controller chooses
    http_url: str
    rpc_host: str
    rpc_port: int
    rack: str | None = None
    replaces: bool = False  # whether it may take the id of a broker that is not alive


class ForgetBroker(msgspec.Struct, frozen=True, array_like=True, tag="forget_broker"):
    """A broker is no more, unless it has been started again since. No other broker gets its id."""

    broker_id: NodeId
    incarnation: str = ""  # of its last process; the controller fills it in


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag="create_topic"):
    """A topic and where its replicas are: one row of brokers for each partition, preferred leader first."""

    name: str
    creation_id: str  # of the request: a repeated one makes nothing
    placement: tuple[tuple[NodeId, ...], ...]
    config: dict[str, int | str] = {}


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag="delete_topic"):
    """Delete a topic, if ``topic_id`` and ``expected_version``, where given, match."""

    name: str
    expected_version: int | None = None
    topic_id: TopicId | None = None  # None: whichever has the name


class AlterTopicConfig(msgspec.Struct, frozen=True, array_like=True, tag="alter_topic_config"):
    """New values for some keys; ``None`` puts a key back to its default."""

    name: str
    changes: dict[str, int | str | None]
    expected_version: int | None = None
    topic_id: TopicId | None = None  # None: whichever has the name


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag="add_partitions"):
    """More partitions for a topic that has ``expected`` of them: a row of brokers for each, leader first."""

    name: str
    topic_id: TopicId
    expected: int
    placement: tuple[tuple[NodeId, ...], ...]
    expected_version: int | None = None
    expected_shape: int | None = None  # see ``TopicInfo.shape_version``


class DecommissionPartitions(msgspec.Struct, frozen=True, array_like=True, tag="decommission_partitions"):
    """Only the first ``writable`` partitions take records from now on, where the first ``expected`` did.

    With more than ``expected`` it ends the decommissioning of some.
    """

    name: str
    topic_id: TopicId
    expected: int
    writable: int
    expected_shape: int
    expected_version: int | None = None


class RemovePartition(msgspec.Struct, frozen=True, array_like=True, tag="remove_partition"):
    """A leader reports that its decommissioned partition has no record left: the partition is removed."""

    name: str
    topic_id: TopicId
    partition: int
    group_id: GroupId
    decommission_version: int  # that the leader knew: none has ended the decommissioning since
    end_offset: Offset  # one past the newest entry of its log that is known to be committed
    records_end: Offset  # one past its newest record


class AllocateProducerIds(msgspec.Struct, frozen=True, array_like=True, tag="allocate_producer_ids"):
    """A block of producer ids that were never given out."""

    count: int


class SetClusterId(msgspec.Struct, frozen=True, array_like=True, tag="set_cluster_id"):
    """The first command of a metadata log; later ones change nothing."""

    cluster_id: str
    bootstrap_id: str
    feature_level: int = 1


class SetFeatureLevel(msgspec.Struct, frozen=True, array_like=True, tag="set_feature_level"):
    """All brokers understand this level from now on. A level never falls."""

    level: int


class StartPlan(msgspec.Struct, frozen=True, array_like=True, tag="start_plan"):
    """Carry these moves out, unless there is a plan already. They were planned at version ``made_at``."""

    moves: tuple[PlannedMove, ...]
    made_at: int
    is_automatic: bool = False


class EndPlan(msgspec.Struct, frozen=True, array_like=True, tag="end_plan"):
    """No move of this plan begins any more: it is complete, or cancelled."""

    version: int


class SetReplicas(msgspec.Struct, frozen=True, array_like=True, tag="set_replicas"):
    """The voters that a partition shall have, if its present target is ``expected``."""

    name: str
    topic_id: TopicId
    partition: int
    replicas: tuple[NodeId, ...]
    expected: tuple[NodeId, ...]


class ReplicasChanged(msgspec.Struct, frozen=True, array_like=True, tag="replicas_changed"):
    """The voters of a partition since ``membership_index`` of its log, which is committed."""

    name: str
    topic_id: TopicId
    partition: int
    group_id: GroupId
    replicas: tuple[NodeId, ...]
    membership_index: int
    target_version: int  # of the partition's metadata that the leader has worked towards


class RecoveredUnsafely(msgspec.Struct, frozen=True, array_like=True, tag="recovered_unsafely"):
    """The survivor's log is the truth from now on, in a group of its own; the rest is given up."""

    name: str
    topic_id: TopicId
    partition: int
    group_id: GroupId  # the group that is given up
    survivor: NodeId
    lost: tuple[NodeId, ...]
    last_term: int
    last_index: int
    commit_index: int
    at_ms: int


Command = (
    RegisterBroker
    | FenceBroker
    | UnfenceBroker
    | DrainBroker
    | DecommissionBroker
    | AdmitBroker
    | ForgetBroker
    | CreateTopic
    | DeleteTopic
    | AlterTopicConfig
    | AddPartitions
    | DecommissionPartitions
    | RemovePartition
    | AllocateProducerIds
    | SetClusterId
    | SetReplicas
    | ReplicasChanged
    | RecoveredUnsafely
    | SetFeatureLevel
    | StartPlan
    | EndPlan
)

COMMANDS: Final[tuple[type[Command], ...]] = get_args(Command)


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """Bytes that this version does not understand, and why."""

    reason: str


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    version: int
    command: Command


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)


def encode(command: Command) -> bytes:
    """The value of a command's record; equal commands give equal bytes."""
    return _ENCODER.encode(_Envelope(ENCODING_VERSION, command))


def decode(value: bytes | None) -> Command | UnknownCommand:
    """The command in a record's value. Never raises: what cannot be read is an ``UnknownCommand``."""
    try:
        envelope = _DECODER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return UnknownCommand(str(error))
    if envelope.version != ENCODING_VERSION:
        return UnknownCommand(f"encoding version {envelope.version}; this broker reads {ENCODING_VERSION}")
    return envelope.command


def command_batch(command: Command, timestamp_ms: int) -> Batch:
    """A command as the batch that is proposed to the metadata group."""
    return batch_of_command(encode(command), timestamp_ms)
