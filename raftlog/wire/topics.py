"""The operations on topics: create, describe, change and delete; partitions of a topic."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire import bodies
from raftlog.wire.limits import NAME_PATTERN
from raftlog.wire.operation import Leader, Operation

LIST = Operation(
    name="topics.list",
    request="GET /v1/topics",
    summary="List topics",
    text="By name.",
    leader=Leader.METADATA,
    answer=bodies.TopicList,
    success={200: "a page"},
)

CREATE = Operation(
    name="topics.create",
    request="POST /v1/topics",
    summary="Create a topic",
    text=(
        f"Names are `{NAME_PATTERN[1:-1]}`. Replication factors are odd. `config` takes the names of Kafka."
    ),
    leader=Leader.CONTROLLER,
    body=bodies.CreateTopic,
    answer=bodies.TopicDescription,
    success={201: "the new topic"},
    headers=(
        "Location",
        "ETag",
    ),
    errors=(
        errors.TopicExists,
        errors.Overloaded,
    ),
)

DESCRIBE = Operation(
    name="topics.describe",
    request="GET /v1/topics/{topic}",
    summary="Describe a topic",
    leader=Leader.METADATA,
    answer=bodies.TopicDescription,
    success={200: "the topic"},
    headers=("ETag",),
    errors=(errors.TopicNotFound,),
)

DELETE = Operation(
    name="topics.delete",
    request="DELETE /v1/topics/{topic}",
    summary="Delete a topic",
    text="Deletes its records; waiting readers get 404, and a later topic of this name starts empty.",
    leader=Leader.CONTROLLER,
    answer=bodies.TopicDeleted,
    success={200: "the topic is deleted"},
    errors=(
        errors.TopicNotFound,
        errors.PreconditionFailed,
    ),
    may_repeat=False,
)

CONFIG = Operation(
    name="topics.config",
    request="GET /v1/topics/{topic}/config",
    summary="Read a topic's configuration",
    leader=Leader.METADATA,
    answer=bodies.TopicConfig,
    success={200: "the effective settings, and the settings of this topic"},
    headers=("ETag",),
    errors=(errors.TopicNotFound,),
)

ALTER = Operation(
    name="topics.alter",
    request="PATCH /v1/topics/{topic}/config",
    summary="Change a topic's configuration",
    text="`null` resets a setting to its default; settings that are not sent stay.",
    leader=Leader.CONTROLLER,
    body=bodies.ChangeTopic,
    answer=bodies.TopicConfig,
    success={200: "the effective settings"},
    headers=("ETag",),
    errors=(
        errors.TopicNotFound,
        errors.PreconditionFailed,
        errors.Overloaded,
    ),
    may_repeat=False,
)

ADD_PARTITIONS = Operation(
    name="topics.add_partitions",
    request="POST /v1/topics/{topic}/partitions:add",
    summary="Add partitions to a topic",
    text=(
        "Existing records do not move; new records use all partitions, so most keys then belong to another "
        "partition. Groups rebalance and read the new partitions from their start. Send "
        "`expected`, the number of partitions before, so that a repeated request adds no partitions twice."
    ),
    leader=Leader.CONTROLLER,
    body=bodies.AddPartitions,
    answer=bodies.PartitionsAdded,
    success={200: "the topic with its new partitions"},
    headers=("ETag",),
    errors=(
        errors.TopicNotFound,
        errors.PreconditionFailed,
        errors.Overloaded,
    ),
)

DECOMMISSION_PARTITIONS = Operation(
    name="topics.decommission_partitions",
    request="POST /v1/topics/{topic}/partitions:decommission",
    summary="Decommission partitions of a topic",
    text=(
        "The last partitions of the topic take no more records. Consumers read the existing records; "
        "once retention has deleted the last record the partition is removed, and groups rebalance. New "
        "records use the other partitions, so most keys then belong to another partition."
    ),
    leader=Leader.CONTROLLER,
    body=bodies.DecommissionPartitions,
    answer=bodies.PartitionsDecommissioned,
    success={202: "the topic; its partitions are removed later"},
    headers=("ETag",),
    errors=(
        errors.TopicNotFound,
        errors.PreconditionFailed,
        errors.PartitionNotFound,
        errors.Conflict,
        errors.Overloaded,
    ),
)

RECOMMISSION_PARTITIONS = Operation(
    name="topics.recommission_partitions",
    request="POST /v1/topics/{topic}/partitions:recommission",
    summary="End the decommissioning of partitions",
    text="They take records again, and keep all records that retention has not deleted.",
    leader=Leader.CONTROLLER,
    body=bodies.RecommissionPartitions,
    answer=bodies.PartitionsDecommissioned,
    success={200: "the topic"},
    headers=("ETag",),
    errors=(
        errors.TopicNotFound,
        errors.PreconditionFailed,
        errors.PartitionNotFound,
        errors.Conflict,
        errors.Overloaded,
    ),
)
