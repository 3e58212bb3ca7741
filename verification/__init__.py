"""Searches for faults of raftlog, for its developers only: no wheel contains this package.

``simulator`` runs whole brokers, bare cores and logs under random faults, ``crash_points`` crashes a broker
after each disk operation, ``corruption`` damages disks, ``disk_calls`` checks system calls against a model of
POSIX durability, ``abuse`` sends invalid and hostile requests. Leaves to others: real clusters, and the
checkers of what clients saw (``chaos``).
"""
