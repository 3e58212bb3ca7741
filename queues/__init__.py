"""Queues: topics whose records groups process as jobs, with leases, retries and dead letters. All pure.

Decides: which worker has a job and until when, the content of receipts, and when a job becomes a dead letter.
Leaves to others: the topic ``__offsets`` and committed offsets (``groups``, which owns the rows), reading
topics and storing dead letters (``broker.coordinators.jobs``), HTTP (``api``).

Read ``records`` (the stored rows) first. ``work_queue`` decides about one queue, with ``look_ahead`` (jobs
not delivered yet) and ``open_jobs`` (leases); ``all_queues`` decides about all queues of a partition.
``ports`` declares the interface through which queues use groups.
"""
