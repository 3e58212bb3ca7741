"""raftlog: a distributed log. This is what an application imports.

``Client`` is the blocking client; ``raftlog.aio.Client`` is its async twin with the same names. Every
error is a ``RaftlogError`` (the tree is drawn in ``raftlog.errors``). Leaves to others: the broker,
which is started with ``raftlog serve``.
"""

from raftlog.client.blocking import Client, Cluster, Partition, Producer, Topics
from raftlog.client.messages import Chunk, Message
from raftlog.client.receipts import BlockingPendingReceipt as PendingReceipt
from raftlog.client.receipts import Durability, Receipt
from raftlog.errors import (
    CommitUnknown,
    ConnectionLost,
    CorruptBatch,
    Draining,
    InvalidRecord,
    InvalidRequest,
    NoLeader,
    NotEnoughReplicas,
    NotLeader,
    NotSent,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    PreconditionFailed,
    ProducerFenced,
    QuotaExceeded,
    RaftlogError,
    RecordTooLarge,
    Rejected,
    StorageFull,
    TopicExists,
    Unknown,
    UnknownPartition,
    UnknownTopic,
    UnsupportedMediaType,
)

__all__ = [
    "Chunk",
    "Client",
    "Cluster",
    "CommitUnknown",
    "ConnectionLost",
    "CorruptBatch",
    "Draining",
    "Durability",
    "InvalidRecord",
    "InvalidRequest",
    "Message",
    "NoLeader",
    "NotEnoughReplicas",
    "NotLeader",
    "NotSent",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "Overloaded",
    "Partition",
    "PendingReceipt",
    "PreconditionFailed",
    "Producer",
    "ProducerFenced",
    "QuotaExceeded",
    "RaftlogError",
    "Receipt",
    "RecordTooLarge",
    "Rejected",
    "StorageFull",
    "TopicExists",
    "Topics",
    "Unknown",
    "UnknownPartition",
    "UnknownTopic",
    "UnsupportedMediaType",
]
