"""The operations on partitions: offsets, leadership, replicas, deletion, archiving and recovery."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire import bodies
from raftlog.wire.limits import REPLICAS_MAX
from raftlog.wire.operation import Leader, Operation

OFFSET_AT = Operation(
    name="partitions.offset_at",
    request="GET /v1/topics/{topic}/partitions/{partition}/offsets",
    summary="Find an offset",
    text=(
        "`latest` is the end of the readable records: the last stable offset, or the high watermark with "
        "`isolation=uncommitted`. `earliest` is the first offset in the archive, if the log begins above it."
    ),
    leader=Leader.PARTITION,
    answer=bodies.FoundOffset,
    success={200: "the offset, and the timestamp of its record"},
    errors=(
        errors.OffsetOutOfRange,
        errors.ArchiveUnavailable,
    ),
)

DELETE_BEFORE = Operation(
    name="partitions.delete_before",
    request="POST /v1/topics/{topic}/partitions/{partition}:delete-before",
    summary="Delete the oldest records of a partition",
    text=(
        "All records below `offset`. Once the response is sent, every broker refuses them with 410, "
        "also after a fail-over; disk space is freed by whole segments at the next check of retention. If "
        "the log begins at `offset` or above, nothing changes. The offset may be the high watermark at "
        "most, and the first offset of the oldest open transaction at most (409). Compacted topics are "
        "refused, unless `cleanup.policy` is `compact,delete`, and so are internal topics. If "
        "`retention.archive.required` is set, records that are not archived are refused (409)."
    ),
    leader=Leader.PARTITION,
    body=bodies.DeleteBefore,
    answer=bodies.RecordsDeleted,
    success={200: "the new log start offset"},
    errors=(errors.Conflict, errors.Overloaded, errors.StorageFull),
)

SET_ARCHIVED = Operation(
    name="partitions.set_archived",
    request="POST /v1/topics/{topic}/partitions/{partition}:set-archived",
    summary="Set the archived offset of a partition",
    text=(
        "All records below `offset` are in an archive. If `retention.archive.required` is set, retention "
        "keeps the others. An offset below the present one changes nothing, unless `allow_lower` is true. "
        "The offset may be the last stable offset at most. Internal topics are refused."
    ),
    leader=Leader.PARTITION,
    body=bodies.SetArchived,
    answer=bodies.ArchivedUpTo,
    success={200: "the archived offset"},
    errors=(errors.Conflict, errors.Overloaded, errors.StorageFull),
)

TRANSFER_LEADERSHIP = Operation(
    name="partitions.transfer_leadership",
    request="POST /v1/topics/{topic}/partitions/{partition}:transfer-leadership",
    summary="Move the leadership of a partition",
    text=(
        "To the broker `to`, or to the most up-to-date replica. The response is sent once it leads. With "
        "`leader_epoch`, the epoch of the leader to be replaced, the request is safe to repeat: once a "
        "leader of a later epoch leads, nothing changes, and the response names that leader."
    ),
    leader=Leader.PARTITION,
    body=bodies.TransferLeadership,
    body_required=False,
    answer=bodies.Leadership,
    success={200: "the new leader"},
    errors=(
        errors.Conflict,
        errors.LeadershipNotMoved,
    ),
    may_repeat=False,
)

ADD_REPLICA = Operation(
    name="partitions.add_replica",
    request="POST /v1/topics/{topic}/partitions/{partition}:add-replica",
    summary="Add a replica",
    text="The replica becomes a voter when it has caught up. An even number tolerates no more failures.",
    leader=Leader.CONTROLLER,
    body=bodies.OneReplica,
    answer=bodies.PartitionDescription,
    success={200: "the move is complete", 202: "the move is in progress; see `reassignment`"},
    errors=(
        errors.Conflict,
        errors.PreconditionFailed,
    ),
    may_repeat=False,
)

REMOVE_REPLICA = Operation(
    name="partitions.remove_replica",
    request="POST /v1/topics/{topic}/partitions/{partition}:remove-replica",
    summary="Remove a replica",
    text="Its files are deleted after a membership without it is committed.",
    leader=Leader.CONTROLLER,
    body=bodies.OneReplica,
    answer=bodies.PartitionDescription,
    success={200: "the move is complete", 202: "the move is in progress; see `reassignment`"},
    errors=(
        errors.Conflict,
        errors.PreconditionFailed,
    ),
    may_repeat=False,
)

SET_REPLICAS = Operation(
    name="partitions.set_replicas",
    request="POST /v1/topics/{topic}/partitions/{partition}:set-replicas",
    summary="Set all replicas",
    text=(
        f"The general form: 1 to {REPLICAS_MAX} brokers, the preferred leader first. It replaces an "
        f"incomplete move."
    ),
    leader=Leader.CONTROLLER,
    body=bodies.SetReplicas,
    answer=bodies.PartitionDescription,
    success={200: "the move is complete", 202: "the move is in progress; see `reassignment`"},
    errors=(
        errors.Conflict,
        errors.PreconditionFailed,
    ),
    may_repeat=False,
)

UNSAFE_RECOVER = Operation(
    name="partitions.unsafe_recover",
    request="POST /v1/topics/{topic}/partitions/{partition}:unsafe-recover",
    summary="Recover a partition whose majority is lost",
    text=(
        "Without `confirm` nothing changes: the 409 response has the survivor, the possible loss, and the "
        "phrase to confirm."
    ),
    leader=Leader.CONTROLLER,
    body=bodies.UnsafeRecover,
    body_required=False,
    answer=bodies.PartitionDescription,
    success={200: "the recovered partition"},
    errors=(
        errors.Conflict,
        errors.PreconditionFailed,
    ),
    may_repeat=False,
)

LIST = Operation(
    name="partitions.list",
    request="GET /v1/topics/{topic}/partitions",
    summary="List the partitions of a topic",
    text="By number.",
    leader=Leader.PARTITION,
    answer=bodies.PartitionList,
    success={200: "a page"},
    errors=(errors.TopicNotFound,),
)

DESCRIBE = Operation(
    name="partitions.describe",
    request="GET /v1/topics/{topic}/partitions/{partition}",
    summary="Describe a partition",
    leader=Leader.PARTITION,
    answer=bodies.PartitionDescription,
    success={200: "the partition"},
)
