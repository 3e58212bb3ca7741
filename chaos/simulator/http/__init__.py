"""Shipped clients and the shipped HTTP server in a simulated cluster, joined by simulated TCP.

Decides: what the sockets do (``streams``), what clients do (``producers``, ``readers``, ``raw_clients``), and
what every answer must say when it leaves the broker (``wire``, ``checker``). Leaves to others: brokers and
their faults (``machine``, ``faults``), and what several answers say together (``chaos.checkers``).

``api.app`` and ``raftlog.client`` run as they ship. Begin with ``setup``, which joins all of this to a run.
"""
