"""Transactions: batches in several partitions, and offsets of groups, that become visible together or never.

Decides: which transaction of a transactional id is open, its outcome, and when the next transaction may
begin; all stored in the compacted topic ``__transactions``. Leaves to others: replication (``raftlog``), the
batches and markers of a transaction in a partition (``partitions``), HTTP (``api``).

Read ``records`` (the stored records) first. ``decisions`` decides about all transactions of a partition of
``__transactions``, without IO; ``fencing`` has the errors for requests of earlier transactions.
"""
