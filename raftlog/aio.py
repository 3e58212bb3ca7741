"""The async versions of the public names of ``raftlog``, for ``async with``, ``async for`` and ``await``."""

from raftlog.client.admin import AsyncBrokers as Brokers
from raftlog.client.admin import AsyncCluster as Cluster
from raftlog.client.admin import AsyncTopics as Topics
from raftlog.client.client import AsyncClient as Client
from raftlog.client.consumer.batches import AsyncBatchTransaction as BatchTransaction
from raftlog.client.consumer.batches import AsyncMessageBatch as MessageBatch
from raftlog.client.consumer.faces import AsyncConsumer as Consumer
from raftlog.client.dead_letters import AsyncDeadLetters as DeadLetters
from raftlog.client.delayed import AsyncDelayed as Delayed
from raftlog.client.groups import AsyncGroups as Groups
from raftlog.client.partition import AsyncPartition as Partition
from raftlog.client.partitions import AsyncPartitions as Partitions
from raftlog.client.producer import AsyncProducer as Producer
from raftlog.client.queue import AsyncJob as Job
from raftlog.client.queue import AsyncQueue as Queue
from raftlog.client.receipts import PendingReceipt
from raftlog.client.schedules import AsyncSchedules as Schedules
from raftlog.client.transaction import AsyncTransaction as Transaction
from raftlog.client.transactions import AsyncTransactions as Transactions
from raftlog.client.worker.options import Backoff

__all__ = [
    "Backoff",
    "BatchTransaction",
    "Brokers",
    "Client",
    "Cluster",
    "Consumer",
    "DeadLetters",
    "Delayed",
    "Groups",
    "Job",
    "MessageBatch",
    "Partition",
    "Partitions",
    "PendingReceipt",
    "Producer",
    "Queue",
    "Schedules",
    "Topics",
    "Transaction",
    "Transactions",
]
