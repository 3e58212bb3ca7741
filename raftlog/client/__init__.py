"""The client: producing to partitions and reading them, from Python, async and blocking.

Decides: which partition a record goes to, how records become batches, what is retried, and in which
order batches may leave so that nothing is written twice or out of order. Leaves to others: storing,
and recognising what was sent before (brokers).

Read ``pipeline`` first: it holds the rules of order. Then the way of a record: ``producer``,
``partitioners``, ``buffer``, ``sender``, ``receipts``. Reading is ``partition`` and ``messages``.
``session`` and ``metadata`` know brokers and leaders; ``client`` ties all together, and ``blocking``
is its twin for threads, over ``portal``.
"""

from raftlog.client.blocking import Client
from raftlog.client.client import AsyncClient

__all__ = ["AsyncClient", "Client"]
