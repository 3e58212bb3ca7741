"""Transactions: batches in several partitions, and offsets of groups, that become visible together or never.

Decides: which transaction of a transactional id is open, whether it is committed, and when a next one may
begin, which are the records of the compacted topic ``__transactions``. Leaves to others: replication
(``raftlog``), what a partition does with batches and markers of a transaction (``partitions``), HTTP
(``api``).

Read ``records`` first: what is stored. ``decisions`` decides about all transactions of a partition of that
topic, without IO; ``fencing`` says what a request of an earlier transaction is told.
"""
