"""Injects faults into real clusters, and checks what the clients of the clusters saw.

Decides: the faults, and the rules for a history of operations. Leaves to others: the brokers (``api``).

Read ``cluster`` (control of broker processes), ``history`` (what clients saw) and ``checkers`` first.
``workload`` makes load, ``demo`` shows all of this with real data, ``consumer_groups`` tests consumer groups,
and ``kit`` runs the brokers of the testing kit. Simulated clusters are in ``verification``.
"""
