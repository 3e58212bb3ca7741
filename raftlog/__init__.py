"""Public names of raftlog, a distributed log: the module that an application imports.

``Client`` is the blocking client; ``raftlog.aio.Client`` is its async twin with the same names. Every
error is a ``RaftlogError`` (the tree is drawn in ``raftlog.errors``). Leaves to others: the broker,
which is started with ``raftlog serve``.

The modules of the client and of its results are imported when a name of theirs is first used: brokers and
``raftlog --help`` import only ``raftlog.errors`` and load no HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from raftlog.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    BrokerNotFound,
    CommitUnknown,
    Conflict,
    ConnectionLost,
    CorruptBatch,
    DelayedAlreadyDelivered,
    DelayedNotFound,
    Draining,
    GroupNotFound,
    HeadersTooLarge,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    InternalError,
    InvalidRecord,
    InvalidRequest,
    JoinRefused,
    LeadershipNotMoved,
    LeaseLost,
    MalformedRequest,
    MemberNotFound,
    MethodNotAllowed,
    MisdirectedRequest,
    NoLeader,
    NotAcceptable,
    NotEnoughReplicas,
    NotLeader,
    NotSent,
    OffsetOutOfRange,
    OffsetsPending,
    OriginNotAllowed,
    OutcomeForgotten,
    OutOfOrderSequence,
    Overloaded,
    PartitionDecommissioned,
    PartitionNotFound,
    PathNotFound,
    PreconditionFailed,
    ProducerFenced,
    QueueNotFound,
    QuotaExceeded,
    RaftlogError,
    RebalanceInProgress,
    RecordNotFound,
    RecordTooLarge,
    Rejected,
    ReplicaNotInSync,
    RequestTimeout,
    ScheduleNotFound,
    StaleGeneration,
    StorageFull,
    TopicExists,
    TopicNotFound,
    TransactionAborted,
    TransactionEnding,
    TransactionNotFound,
    UndecodableBatch,
    Unknown,
    UnsupportedMediaType,
    UriTooLong,
)

if TYPE_CHECKING:
    from raftlog.client.blocking import (
        Brokers,
        Client,
        Cluster,
        DeadLetters,
        Delayed,
        Groups,
        Partition,
        Partitions,
        Schedules,
        Topics,
        Transactions,
    )
    from raftlog.client.blocking_producer import Producer, Transaction
    from raftlog.client.blocking_queue import Job, Queue
    from raftlog.client.consumer.batches import BatchTransaction, MessageBatch
    from raftlog.client.consumer.faces import Consumer
    from raftlog.client.dead_letters import DeadLetter
    from raftlog.client.delayed import DelayedReceipt
    from raftlog.client.delivery import Delivery
    from raftlog.client.messages import Chunk, Message
    from raftlog.client.receipts import BlockingPendingReceipt as PendingReceipt
    from raftlog.client.receipts import Durability, Receipt
    from raftlog.client.tls import Tls
    from raftlog.client.worker.options import Backoff
    from raftlog.records.builder import Record
    from raftlog.types import TopicPartition
    from raftlog.wire.bodies import (
        ArchivedUpTo,
        BrokerDescription,
        BrokerForgotten,
        ClusterDescription,
        ControllerDescription,
        Leadership,
        PartitionDescription,
        PartitionsAdded,
        PartitionsDecommissioned,
        RecordsDeleted,
        TopicConfig,
        TopicDescription,
    )
    from raftlog.wire.delays import DelayedMessage, DelayedMessageDescription
    from raftlog.wire.dependents import TopicDependents
    from raftlog.wire.groups import (
        GroupDescription,
        GroupOffset,
        GroupSummary,
        OffsetChange,
        PendingOffset,
        Rebalance,
    )
    from raftlog.wire.plans import PlanDescription
    from raftlog.wire.queues import QueueDescription
    from raftlog.wire.schedules import ScheduleDescription
    from raftlog.wire.transactions import BegunRun, TransactionDescription

__all__ = [
    "ArchiveDamaged",
    "ArchiveUnavailable",
    "ArchivedUpTo",
    "Backoff",
    "BatchTransaction",
    "BegunRun",
    "BrokerDescription",
    "BrokerForgotten",
    "BrokerNotFound",
    "Brokers",
    "Chunk",
    "Client",
    "Cluster",
    "ClusterDescription",
    "CommitUnknown",
    "Conflict",
    "ConnectionLost",
    "Consumer",
    "ControllerDescription",
    "CorruptBatch",
    "DeadLetter",
    "DeadLetters",
    "Delayed",
    "DelayedAlreadyDelivered",
    "DelayedMessage",
    "DelayedMessageDescription",
    "DelayedNotFound",
    "DelayedReceipt",
    "Delivery",
    "Draining",
    "Durability",
    "GroupDescription",
    "GroupNotFound",
    "GroupOffset",
    "GroupSummary",
    "Groups",
    "HeadersTooLarge",
    "IdempotencyInProgress",
    "IdempotencyKeyReused",
    "InternalError",
    "InvalidRecord",
    "InvalidRequest",
    "Job",
    "JoinRefused",
    "Leadership",
    "LeadershipNotMoved",
    "LeaseLost",
    "MalformedRequest",
    "MemberNotFound",
    "Message",
    "MessageBatch",
    "MethodNotAllowed",
    "MisdirectedRequest",
    "NoLeader",
    "NotAcceptable",
    "NotEnoughReplicas",
    "NotLeader",
    "NotSent",
    "OffsetChange",
    "OffsetOutOfRange",
    "OffsetsPending",
    "OriginNotAllowed",
    "OutOfOrderSequence",
    "OutcomeForgotten",
    "Overloaded",
    "Partition",
    "PartitionDecommissioned",
    "PartitionDescription",
    "PartitionNotFound",
    "Partitions",
    "PartitionsAdded",
    "PartitionsDecommissioned",
    "PathNotFound",
    "PendingOffset",
    "PendingReceipt",
    "PlanDescription",
    "PreconditionFailed",
    "Producer",
    "ProducerFenced",
    "Queue",
    "QueueDescription",
    "QueueNotFound",
    "QuotaExceeded",
    "RaftlogError",
    "Rebalance",
    "RebalanceInProgress",
    "Receipt",
    "Record",
    "RecordNotFound",
    "RecordTooLarge",
    "RecordsDeleted",
    "Rejected",
    "ReplicaNotInSync",
    "RequestTimeout",
    "ScheduleDescription",
    "ScheduleNotFound",
    "Schedules",
    "StaleGeneration",
    "StorageFull",
    "Tls",
    "TopicConfig",
    "TopicDependents",
    "TopicDescription",
    "TopicExists",
    "TopicNotFound",
    "TopicPartition",
    "Topics",
    "Transaction",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionEnding",
    "TransactionNotFound",
    "Transactions",
    "UndecodableBatch",
    "Unknown",
    "UnsupportedMediaType",
    "UriTooLong",
]

_LATER = {
    "client.blocking": (
        "Brokers",
        "Client",
        "Cluster",
        "DeadLetters",
        "Delayed",
        "Groups",
        "Partition",
        "Partitions",
        "Schedules",
        "Topics",
        "Transactions",
    ),
    "client.blocking_producer": (
        "Producer",
        "Transaction",
    ),
    "client.blocking_queue": (
        "Job",
        "Queue",
    ),
    "client.consumer.batches": (
        "BatchTransaction",
        "MessageBatch",
    ),
    "client.consumer.faces": ("Consumer",),
    "client.dead_letters": ("DeadLetter",),
    "client.delayed": ("DelayedReceipt",),
    "client.delivery": ("Delivery",),
    "client.messages": (
        "Chunk",
        "Message",
    ),
    "client.receipts": (
        "Durability",
        "PendingReceipt",
        "Receipt",
    ),
    "client.tls": ("Tls",),
    "client.worker.options": ("Backoff",),
    "records.builder": ("Record",),
    "types": ("TopicPartition",),
    "wire.bodies": (
        "ArchivedUpTo",
        "BrokerDescription",
        "BrokerForgotten",
        "ClusterDescription",
        "ControllerDescription",
        "Leadership",
        "PartitionDescription",
        "PartitionsAdded",
        "PartitionsDecommissioned",
        "RecordsDeleted",
        "TopicConfig",
        "TopicDescription",
    ),
    "wire.delays": (
        "DelayedMessage",
        "DelayedMessageDescription",
    ),
    "wire.dependents": ("TopicDependents",),
    "wire.groups": (
        "GroupDescription",
        "GroupOffset",
        "GroupSummary",
        "OffsetChange",
        "PendingOffset",
        "Rebalance",
    ),
    "wire.plans": ("PlanDescription",),
    "wire.queues": ("QueueDescription",),
    "wire.schedules": ("ScheduleDescription",),
    "wire.transactions": (
        "BegunRun",
        "TransactionDescription",
    ),
}
"""Public names by the module that defines them; a module is imported when a name of it is first used."""
_RENAMED = {"PendingReceipt": "BlockingPendingReceipt"}
_MODULES = {name: module for module, names in _LATER.items() for name in names}


if not TYPE_CHECKING:  # mypy would accept any name if it saw this function

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES[name]}")
        found = globals()[name] = getattr(module, _RENAMED.get(name, name))
        return found
