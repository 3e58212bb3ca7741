"""The operations on records: produce and fetch, and producer ids."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire import bodies, headers, media_types
from raftlog.wire.operation import BINARY, TEXT, Leader, Operation, Success

_READ = (errors.OffsetOutOfRange, errors.UndecodableBatch, errors.ArchiveDamaged, errors.ArchiveUnavailable)
_WRITTEN = (
    errors.InvalidRecord,
    errors.PartitionDecommissioned,
    errors.NotEnoughReplicas,
    errors.Overloaded,
    errors.QuotaExceeded,
    errors.Draining,
    errors.StorageFull,
    errors.ProducerFenced,
    errors.TransactionNotFound,
    errors.TransactionAborted,
    errors.TransactionEnding,
    errors.IdempotencyKeyReused,
    errors.IdempotencyInProgress,
)

FETCH = Operation(
    name="records.fetch",
    request="GET /v1/topics/{topic}/partitions/{partition}/records",
    summary="Fetch records, or follow them",
    text=(
        "`Accept` selects JSON, binary batches (whole ones: the first may begin before the requested "
        "offset) or an event stream with the events `record`, `heartbeat` and `problem`."
    ),
    leader=Leader.PARTITION,
    answer=bodies.Fetched,
    success={
        200: Success(
            "records; continue at `next_offset`",
            {media_types.JSON: bodies.Fetched, media_types.BATCH: BINARY, media_types.EVENT_STREAM: TEXT},
            (
                headers.NEXT_OFFSET,
                headers.HIGH_WATERMARK,
                headers.LAST_STABLE_OFFSET,
                headers.LOG_START_OFFSET,
                headers.LEADER_EPOCH,
                headers.SERVED_BY,
                headers.ARCHIVED,
                headers.LEADER,
            ),
        ),
        204: Success(
            "no records yet",
            headers=(
                headers.NEXT_OFFSET,
                headers.HIGH_WATERMARK,
                headers.LAST_STABLE_OFFSET,
                headers.LOG_START_OFFSET,
                headers.LEADER_EPOCH,
                headers.SERVED_BY,
                headers.ARCHIVED,
                headers.LEADER,
            ),
        ),
        307: Success("route=redirect: the leader is in Location", headers=("Location",)),
    },
    errors=(
        *_READ,
        errors.NotLeader,
        errors.ReplicaNotInSync,
        errors.Overloaded,
        errors.QuotaExceeded,
        errors.InvalidRecord,
        errors.ConnectionLost,
    ),
)

DESCRIBE = Operation(
    name="records.describe",
    request="GET /v1/topics/{topic}/partitions/{partition}/records/{offset}",
    summary="Get one message",
    text="The path is a permanent link to the message.",
    leader=Leader.PARTITION,
    answer=bodies.Message,
    success={200: "the record"},
    headers=(headers.LEADER,),
    errors=(*_READ, errors.InvalidRecord, errors.RecordNotFound),
)

PRODUCE_TO_PARTITION = Operation(
    name="records.produce_to_partition",
    request="POST /v1/topics/{topic}/partitions/{partition}/records",
    summary="Produce to one partition",
    text=(
        "Atomic: all records are stored contiguously, or none. A body of binary batches answers "
        "`BatchesProduced`, every other body `Produced`."
    ),
    leader=Leader.PARTITION,
    body=bodies.Produce,
    other_bodies={media_types.NDJSON: TEXT, media_types.OCTET_STREAM: BINARY, media_types.BATCH: BINARY},
    answer=bodies.Accepted,
    success={
        200: Success(
            "the records are stored as `durability` says",
            {media_types.JSON: (bodies.Produced, bodies.BatchesProduced)},
            (
                headers.LEADER,
                headers.IDEMPOTENCY_REPLAYED,
            ),
        ),
        202: Success("acks=0: accepted, without an outcome", {media_types.JSON: bodies.Accepted}),
        307: Success("route=redirect: the leader is in Location", headers=("Location",)),
    },
    errors=(*_WRITTEN, errors.CorruptBatch, errors.NotLeader, errors.OutOfOrderSequence),
)

PRODUCE = Operation(
    name="records.produce",
    request="POST /v1/topics/{topic}/records",
    summary="Produce records",
    text=(
        "The partition of a record is murmur2 of its key, as in Kafka's clients; records without a key go "
        "to one random partition; `partition` in a record overrides both."
    ),
    leader=Leader.PARTITION,
    body=bodies.Produce,
    other_bodies={media_types.NDJSON: TEXT, media_types.OCTET_STREAM: BINARY},
    answer=bodies.Produced,
    success={
        200: Success(
            "all records are stored as `durability` says",
            {media_types.JSON: bodies.Produced},
            (
                headers.LEADER,
                headers.IDEMPOTENCY_REPLAYED,
            ),
        ),
        202: Success("acks=0: accepted, without an outcome", {media_types.JSON: bodies.Accepted}),
        207: Success(
            "some partitions failed: a receipt or a problem for each record",
            {media_types.JSON: bodies.Produced},
        ),
    },
    errors=(*_WRITTEN, errors.TopicNotFound),
)

CREATE = Operation(
    name="producers.create",
    request="POST /v1/producers",
    summary="Allocate a producer id for deduplication",
    text=(
        "Send the id with `Raftlog-Producer-Id`, `Raftlog-Producer-Epoch` and `Raftlog-Producer-Sequence`: "
        "retried records are then stored once."
    ),
    leader=Leader.CONTROLLER,
    body=bodies.CreateProducer,
    body_required=False,
    answer=bodies.ProducerIdentity,
    success={201: "a new producer id"},
)
