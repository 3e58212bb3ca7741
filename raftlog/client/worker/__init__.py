"""Workers, which call a function of the user for each record of a group's topics.

Decides: which calls may run at the same time, which offset is committed while other records are still being
handled, and what happens to a record whose call failed. Leaves to others: membership and commits
(``raftlog.client.consumer``), the records of retry and dead-letter topics (``raftlog.records.failures``).

``options`` are the checked options, with ``Backoff``. ``lanes`` orders calls, ``progress`` finds the offset
to commit, ``core`` is one worker on the client's loop, ``failures`` stores failed records, ``calls`` runs
threads and coroutines, and ``run`` has ``run`` and ``stop`` of both clients.
"""
