"""Fault injection for real clusters, and checkers for what their clients saw.

Decides: the faults, and what a history of operations must satisfy. Leaves to others: the brokers (``api``).

Read ``cluster`` (control of broker processes), ``history`` (what clients saw) and ``checkers`` first;
``workload`` makes load, ``demo`` shows all of it with real data, ``consumer_groups`` is for consumer groups,
and ``kit`` runs the brokers of the testing kit. Simulated clusters are in ``verification``.
"""
