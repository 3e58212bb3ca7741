"""Whole brokers under a deterministic simulator: many years of bad luck in minutes, each replayable.

Decides: what time, network, disks, clients and faults do, what must hold after every step and in the
end. Leaves to others: everything that is tested. Brokers run as they ship, groups, storage,
flusher, partition service and metadata group; only sockets, clock and the real disk are replaced.

Read ``simulation`` first, then ``oracles``. ``make sim`` runs it, ``make sim SEED=7`` replays one run
and draws its timeline; ``docs/invariants.md`` numbers what is checked.
"""
