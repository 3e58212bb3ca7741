"""The harness that breaks a cluster on purpose, and judges what its clients saw.

Decides: what is done to real and to simulated brokers, what a history of operations must satisfy. Leaves to
others: the brokers themselves (``api``).

Read ``cluster`` (broker processes under control), ``history`` (what clients saw) and ``checkers``
(the judge) first; ``workload`` makes load, ``demo`` shows all of it with real data. ``simulator`` draws bad
luck for whole brokers, bare cores and logs, ``crash_points`` lets a broker die after each disk operation,
``corruption`` damages disks, ``abuse`` sends what no client should.
"""
