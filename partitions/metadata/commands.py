"""The content of the metadata log: one command is the value of one record in one batch.

This module decides nothing. A command states a result and needs no further decision: placements, creation
ids and incarnations are chosen before it is written, so that all replicas that apply it reach equal metadata.
A command in msgpack has the form ``[1, "create_topic", ...]``: the version of the encoding, then the name of
the command and its fields in order.

A later version adds fields with defaults at the end of a command, or commands with new names. A reader
decodes an unknown command as ``UnknownCommand``, which changes nothing.
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
    replaces: str = ""  # the registered incarnation at the time of the request
    feature_level: int = 1  # that its release supports; not stored
    https_url: str = ""


class FenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="fence_broker"):
    """Mark a broker as not alive: it was silent for too long. Has no effect on a later incarnation."""

    broker_id: NodeId
    incarnation: str


class UnfenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="unfence_broker"):
    """Mark a fenced broker as alive: it is heard again. Has no effect on a later incarnation."""

    broker_id: NodeId
    incarnation: str


class DrainBroker(msgspec.Struct, frozen=True, array_like=True, tag="drain_broker"):
    """Stop placing new replicas on this broker, or allow new replicas again."""

    broker_id: NodeId
    draining: bool = True


class DecommissionBroker(msgspec.Struct, frozen=True, array_like=True, tag="decommission_broker"):
    """Move all replicas of this broker to other brokers and place no more here, or return it to use."""

    broker_id: NodeId
    decommissioned: bool = True


class AdmitBroker(msgspec.Struct, frozen=True, array_like=True, tag="admit_broker"):
    """Let a broker join: from now on its peers dial this address. The broker registers when it starts."""

    admission_id: str  # of the request: a repeated request admits no second broker
    broker_id: NodeId  # 0 in a request: the controller chooses
    http_url: str
    rpc_host: str
    rpc_port: int
    rack: str | None = None
    replaces: bool = False  # whether it may take the id of a broker that is not alive


class ForgetBroker(msgspec.Struct, frozen=True, array_like=True, tag="forget_broker"):
    """Remove a broker, unless it has been restarted since. No other broker gets its id."""

    broker_id: NodeId
    incarnation: str = ""  # of its last process; the controller fills it in


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag="create_topic"):
    """Create a topic with one row of brokers for each partition, preferred leader first."""

    name: str
    creation_id: str  # of the request: a repeated request creates nothing
    placement: tuple[tuple[NodeId, ...], ...]
    config: dict[str, int | str] = {}


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag="delete_topic"):
    """Delete a topic, if ``topic_id`` and ``expected_version``, where given, match."""

    name: str
    expected_version: int | None = None
    topic_id: TopicId | None = None  # None: any topic of that name


class AlterTopicConfig(msgspec.Struct, frozen=True, array_like=True, tag="alter_topic_config"):
    """Set new values of some of a topic's settings; ``None`` resets a setting to its default."""

    name: str
    changes: dict[str, int | str | None]
    expected_version: int | None = None
    topic_id: TopicId | None = None  # None: any topic of that name


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag="add_partitions"):
    """Add partitions to a topic that has ``expected`` partitions.

    ``placement`` has a row of brokers for each new partition, preferred leader first.
    """

    name: str
    topic_id: TopicId
    expected: int
    placement: tuple[tuple[NodeId, ...], ...]
    expected_version: int | None = None
    expected_shape: int | None = None  # expected ``TopicInfo.shape_version``; None: any


class DecommissionPartitions(msgspec.Struct, frozen=True, array_like=True, tag="decommission_partitions"):
    """Make the first ``writable`` partitions accept records, if the first ``expected`` accept records now.

    If ``writable`` is above ``expected``, the command ends the decommissioning of the partitions between.
    """

    name: str
    topic_id: TopicId
    expected: int
    writable: int
    expected_shape: int
    expected_version: int | None = None


class RemovePartition(msgspec.Struct, frozen=True, array_like=True, tag="remove_partition"):
    """Remove a decommissioned partition, because its leader reports that no record is left."""

    name: str
    topic_id: TopicId
    partition: int
    group_id: GroupId
    decommission_version: int  # as the leader knew it: refused if the decommissioning has ended since
    end_offset: Offset  # one past the newest committed entry of its log
    records_end: Offset  # one past its newest record


class AllocateProducerIds(msgspec.Struct, frozen=True, array_like=True, tag="allocate_producer_ids"):
    """Allocate a block of producer ids that were never used."""

    count: int


class SetClusterId(msgspec.Struct, frozen=True, array_like=True, tag="set_cluster_id"):
    """Set the cluster's id: the first command of a metadata log. A repeated command changes nothing."""

    cluster_id: str
    bootstrap_id: str
    feature_level: int = 1


class SetFeatureLevel(msgspec.Struct, frozen=True, array_like=True, tag="set_feature_level"):
    """Raise the cluster's feature level to a level that all brokers support. The level never falls."""

    level: int


class StartPlan(msgspec.Struct, frozen=True, array_like=True, tag="start_plan"):
    """Begin a plan of moves, made at metadata version ``made_at``, unless another plan is in progress."""

    moves: tuple[PlannedMove, ...]
    made_at: int
    is_automatic: bool = False


class EndPlan(msgspec.Struct, frozen=True, array_like=True, tag="end_plan"):
    """End the plan, which is complete or cancelled. Moves of the plan that have not begun never begin."""

    version: int


class SetReplicas(msgspec.Struct, frozen=True, array_like=True, tag="set_replicas"):
    """Set the target voters of a partition, if its current target is ``expected``."""

    name: str
    topic_id: TopicId
    partition: int
    replicas: tuple[NodeId, ...]
    expected: tuple[NodeId, ...]


class ReplicasChanged(msgspec.Struct, frozen=True, array_like=True, tag="replicas_changed"):
    """Report the voters of a partition according to the membership at ``membership_index`` of its log."""

    name: str
    topic_id: TopicId
    partition: int
    group_id: GroupId
    replicas: tuple[NodeId, ...]
    membership_index: int
    target_version: int  # version of the partition's metadata with the target that the leader moved to


class RecoveredUnsafely(msgspec.Struct, frozen=True, array_like=True, tag="recovered_unsafely"):
    """Continue a partition in a new group with one surviving replica's log, and abandon its former group."""

    name: str
    topic_id: TopicId
    partition: int
    group_id: GroupId  # the abandoned group
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
    """A command that this release cannot decode, and the reason."""

    reason: str


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    version: int
    command: Command


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)


def encode(command: Command) -> bytes:
    """Encode a command as the value of a record; equal commands give equal bytes."""
    return _ENCODER.encode(_Envelope(ENCODING_VERSION, command))


def decode(value: bytes | None) -> Command | UnknownCommand:
    """Decode the command in a record's value. Undecodable bytes give an ``UnknownCommand``, no error."""
    try:
        envelope = _DECODER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return UnknownCommand(str(error))
    if envelope.version != ENCODING_VERSION:
        return UnknownCommand(f"encoding version {envelope.version}; this broker reads {ENCODING_VERSION}")
    return envelope.command


def command_batch(command: Command, timestamp_ms: int) -> Batch:
    """Make the batch of a command, for proposal to the metadata group."""
    return batch_of_command(encode(command), timestamp_ms)
