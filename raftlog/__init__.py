"""raftlog: a distributed log. This is what an application imports.

``Client`` is the blocking client; ``raftlog.aio.Client`` is its async twin with the same names. Every
error is a ``RaftlogError`` (the tree is drawn in ``raftlog.errors``). Leaves to others: the broker,
which is started with ``raftlog serve``.

The client's modules are imported when one of its names is first used: brokers and ``raftlog --help``
import ``raftlog.errors`` and want nothing of an HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from raftlog.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    CommitUnknown,
    Conflict,
    ConnectionLost,
    CorruptBatch,
    DelayedAlreadyDelivered,
    Draining,
    InvalidRecord,
    InvalidRequest,
    LeadershipNotMoved,
    LeaseLost,
    NoLeader,
    NotEnoughReplicas,
    NotLeader,
    NotSent,
    OffsetOutOfRange,
    OffsetsPending,
    OutcomeForgotten,
    OutOfOrderSequence,
    Overloaded,
    PreconditionFailed,
    ProducerFenced,
    QuotaExceeded,
    RaftlogError,
    RebalanceInProgress,
    RecordTooLarge,
    Rejected,
    ReplicaNotInSync,
    StaleGeneration,
    StorageFull,
    TopicExists,
    TransactionAborted,
    TransactionEnding,
    UndecodableBatch,
    Unknown,
    UnknownBroker,
    UnknownDelayed,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownQueue,
    UnknownSchedule,
    UnknownTopic,
    UnknownTransaction,
    UnsupportedMediaType,
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
    from raftlog.client.consumer.batches import MessageBatch
    from raftlog.client.consumer.faces import Consumer
    from raftlog.client.dead_letters import DeadLetter
    from raftlog.client.delayed import DelayedReceipt
    from raftlog.client.delivery import Delivery
    from raftlog.client.messages import Chunk, Message
    from raftlog.client.receipts import BlockingPendingReceipt as PendingReceipt
    from raftlog.client.receipts import Durability, Receipt
    from raftlog.client.worker.options import Backoff

__all__ = [
    "ArchiveDamaged",
    "ArchiveUnavailable",
    "Backoff",
    "Brokers",
    "Chunk",
    "Client",
    "Cluster",
    "CommitUnknown",
    "Conflict",
    "ConnectionLost",
    "Consumer",
    "CorruptBatch",
    "DeadLetter",
    "DeadLetters",
    "Delayed",
    "DelayedAlreadyDelivered",
    "DelayedReceipt",
    "Delivery",
    "Draining",
    "Durability",
    "Groups",
    "InvalidRecord",
    "InvalidRequest",
    "Job",
    "LeadershipNotMoved",
    "LeaseLost",
    "Message",
    "MessageBatch",
    "NoLeader",
    "NotEnoughReplicas",
    "NotLeader",
    "NotSent",
    "OffsetOutOfRange",
    "OffsetsPending",
    "OutOfOrderSequence",
    "OutcomeForgotten",
    "Overloaded",
    "Partition",
    "Partitions",
    "PendingReceipt",
    "PreconditionFailed",
    "Producer",
    "ProducerFenced",
    "Queue",
    "QuotaExceeded",
    "RaftlogError",
    "RebalanceInProgress",
    "Receipt",
    "RecordTooLarge",
    "Rejected",
    "ReplicaNotInSync",
    "Schedules",
    "StaleGeneration",
    "StorageFull",
    "TopicExists",
    "Topics",
    "Transaction",
    "TransactionAborted",
    "TransactionEnding",
    "Transactions",
    "UndecodableBatch",
    "Unknown",
    "UnknownBroker",
    "UnknownDelayed",
    "UnknownGroup",
    "UnknownMember",
    "UnknownPartition",
    "UnknownQueue",
    "UnknownSchedule",
    "UnknownTopic",
    "UnknownTransaction",
    "UnsupportedMediaType",
]

_OF_THE_CLIENT = {
    "Backoff": ("worker.options", "Backoff"),
    "Chunk": ("messages", "Chunk"),
    "Client": ("blocking", "Client"),
    "Brokers": ("blocking", "Brokers"),
    "Cluster": ("blocking", "Cluster"),
    "Consumer": ("consumer.faces", "Consumer"),
    "DeadLetter": ("dead_letters", "DeadLetter"),
    "DeadLetters": ("blocking", "DeadLetters"),
    "Delayed": ("blocking", "Delayed"),
    "DelayedReceipt": ("delayed", "DelayedReceipt"),
    "Delivery": ("delivery", "Delivery"),
    "Durability": ("receipts", "Durability"),
    "Groups": ("blocking", "Groups"),
    "Job": ("blocking_queue", "Job"),
    "Message": ("messages", "Message"),
    "MessageBatch": ("consumer.batches", "MessageBatch"),
    "Partition": ("blocking", "Partition"),
    "PendingReceipt": ("receipts", "BlockingPendingReceipt"),
    "Producer": ("blocking_producer", "Producer"),
    "Queue": ("blocking_queue", "Queue"),
    "Receipt": ("receipts", "Receipt"),
    "Partitions": ("blocking", "Partitions"),
    "Schedules": ("blocking", "Schedules"),
    "Topics": ("blocking", "Topics"),
    "Transaction": ("blocking_producer", "Transaction"),
    "Transactions": ("blocking", "Transactions"),
}


if not TYPE_CHECKING:  # with it, a checker would believe in any name

    def __getattr__(name: str) -> object:
        if name not in _OF_THE_CLIENT:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, original = _OF_THE_CLIENT[name]
        found = globals()[name] = getattr(import_module(f"{__name__}.client.{module}"), original)
        return found
