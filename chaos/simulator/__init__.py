"""Brokers, bare cores and logs alone under a deterministic simulator: much bad luck, all of it replayable.

Decides: what time, network, disks, clients and faults do, what must hold after every step and in the
end. Leaves to others: everything that is tested. Brokers run as they ship, groups, storage,
flusher, partition service and metadata group; only sockets, clock and the real disk are replaced. The
other levels (``levels``) are ``raft_level``, with most seeds, ``storage_level``, and brokers with ``http``.

Read ``simulation`` first, then ``checker``. ``make sim`` runs it, ``make sim SEED=7`` replays one run
and draws its timeline, ``shrink`` leaves out what a failing one does not need; ``docs/invariants.md``
numbers what is checked.
"""
