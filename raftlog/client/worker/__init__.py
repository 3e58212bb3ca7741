"""Workers: a function that is called for each record of a group's topics.

Decides: which calls may run at the same time, up to where records are committed while others are still being
handled, and what happens to a record whose call failed. Leaves to others: membership and commits
(``raftlog.client.consumer``), the records of retry and dead-letter topics (``raftlog.records.failures``).

``options`` are the checked options, with ``Backoff``. ``lanes`` and ``progress`` are the order of calls and
the watermark, ``core`` is one worker on the client's loop, ``failures`` puts records aside, ``calls`` are
threads and coroutines, and ``faces`` are ``run`` and ``stop`` of both clients.
"""
