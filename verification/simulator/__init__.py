"""Runs brokers, bare cores and logs in a deterministic simulator with random, reproducible faults.

Decides: the behaviour of time, network, disks, clients and faults, and the checks after every step and at the
end. Leaves to others: the tested code. Brokers are production code: groups, storage, flusher, partition
service and metadata group; only sockets, clock and the real disk are replaced. Other levels (``levels``) test
a part: ``raft_level``, which has most seeds, ``storage_level`` and ``group_level``.

Read ``simulation`` first, then ``checker``. ``make explore`` runs fresh seeds, ``make sim SEED=7`` repeats a
seed and prints its timeline, ``shrink`` reduces a failing run; ``docs/invariants.md`` numbers the checks.
"""
