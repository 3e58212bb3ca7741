"""Fault injection for real and simulated clusters, and checkers for what their clients saw.

Decides: the faults, and what a history of operations must satisfy. Leaves to others: the brokers (``api``).

Read ``cluster`` (control of broker processes), ``history`` (what clients saw) and ``checkers`` first;
``workload`` makes load, ``demo`` shows all of it with real data, ``consumer_groups`` is for consumer groups.
``simulator`` runs whole brokers, bare cores and logs under random faults, ``crash_points`` crashes a broker
after each disk operation, ``corruption`` damages disks, ``abuse`` sends invalid and hostile requests, ``kit``
runs the brokers of the testing kit.
"""
