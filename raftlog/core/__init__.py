"""Raft as a deterministic state machine that does no IO.

Decides: elections, which entries to append and truncate, which entries are committed, and which message may
leave after which write. Leaves to others: the clock (ticks come in), the disk (``Write`` goes out,
``WriteFinished`` comes back), the network, and the bytes of entries: the core knows ids and spans only.

Read ``inputs`` and ``ready`` first (what goes in, what comes out, and what the driver must do with it), then
``raft`` (what a message's term means), ``role_state`` (what every role takes or refuses), and one file per
role: ``follower``, ``election``, ``leader``. All roles share ``member``; ``writes`` decides when a message
may leave, ``membership`` and ``changes`` decide which members a group has.
"""
