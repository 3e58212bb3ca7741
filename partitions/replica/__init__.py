"""One replica of one partition: the log that producers and consumers see.

Decides: whether a batch is accepted (``topic_rules``), whether it is a duplicate (``producers``, with the
``producer_table`` that ``machine`` derives from the log), when it is acknowledged (``acks``), which records a
read returns (``reads``, ``positions``, ``fetch_waiters``), and when a leader serves (``serving``). Leaves to
others: replicating the log (``raftlog``).

Read ``replica`` first. ``producer_admission`` bounds the producers of a whole broker.
"""
