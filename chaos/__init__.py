"""Injects faults into real clusters, and checks what their clients saw.

Decides: the faults, and the rules for a history of operations. Leaves to others: the brokers (``api``).

Read ``cluster`` (control of broker processes), ``history`` (what clients saw) and ``checkers`` first;
``workload`` makes load, ``demo`` shows everything with real data, ``consumer_groups`` is for consumer groups,
and ``kit`` runs the brokers of the testing kit. Simulated clusters are in ``verification``.
"""
