"""The harness that breaks a cluster on purpose, and judges what its clients saw.

Decides: what is done to real broker processes, what a history of operations must satisfy, how
the benchmarks are run beside other systems. Leaves to others: the brokers themselves (``api``).

Read ``cluster`` (broker processes under control), ``history`` (what clients saw) and ``checkers``
(the judge) first; ``workload`` makes load, ``demo`` shows all of it with real data.
"""
