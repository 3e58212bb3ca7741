"""Raft as a deterministic state machine that does no IO.

Decides: elections, what to append and truncate, what is committed, who may be told what and
after which write. Leaves to others: the clock (ticks come in), the disk (``Write`` goes out,
``WriteFinished`` comes back), the network, and the bytes of entries: it knows ids and spans only.

Read ``inputs`` and ``ready`` first (what goes in, what comes out), then ``raft`` (what a message's
term means), ``role_state`` (what every role takes or refuses), and one file per role: ``follower``,
``election``, ``leader``. What all roles share is in ``member``; when a promise may leave, in ``writes``;
who takes part, in ``membership`` and ``changes``.
"""
