"""The Python client: producing and reading, asynchronous and blocking.

Decides: the partition of a record, how records are batched, what is retried, and the order in which batches
are sent so that no record is duplicated or reordered. Leaves to others: storage and duplicate detection
(brokers).

Read ``pipeline`` first: it has the rules of order. The path of a record is ``producer``,
``partitioners``, ``buffer``, ``sender``, ``receipts``. Reading is ``partition`` and ``messages``.
``session`` and ``metadata`` know brokers and leaders; ``client`` combines all, and ``blocking``
is its counterpart for threads, over ``portal``.
"""

from raftlog.client.blocking import Client
from raftlog.client.client import AsyncClient

__all__ = ["AsyncClient", "Client"]
