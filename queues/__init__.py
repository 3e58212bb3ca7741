"""Queues: topics that groups work off job by job, with leases, retries and dead letters. All pure.

Decides: which worker has which job and until when, what its receipt says, and when a job is a dead letter.
Leaves to others: the topic ``__offsets`` and committed offsets (``groups``, which owns the rows), reading
topics and storing dead letters (``broker.coordinators.jobs``), HTTP (``api``).

Read ``records`` first: what is stored. ``work_queue`` decides about one queue, with ``look_ahead`` (jobs that
nobody has had yet) and ``open_jobs`` (leases); ``all_queues`` about all of a partition. ``ports`` declares
the parts of groups that queues use.
"""
