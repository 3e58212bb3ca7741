"""Delayed messages: records that come to their partition at a given time, each of them once.

Decides: which messages are pending, when one is due, and which batch moves it to its target. All of
that is in the records of the compacted topic ``__delayed``. Leaves to others: replication
(``raftlog``), duplicates in the target (``partitions``), HTTP (``api``).

Read ``records`` first: what is stored. ``decisions`` decides about all messages of a partition of that topic,
without IO.
"""
