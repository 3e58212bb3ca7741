"""Delayed messages: records that are appended to their partition at a given time, exactly once.

Decides: which messages are pending, when a message is due, and which batch moves it to its target. The state
is stored in the compacted topic ``__delayed``. Leaves to others: replication (``raftlog``), duplicates in the
target (``partitions``), HTTP (``api``).

Read ``records`` (the stored records) first. ``decisions`` decides about all messages of a partition of
``__delayed``, without IO.
"""
