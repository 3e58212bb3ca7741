"""Runs replicated state machines on one broker: any number of Raft groups, each with a log on this disk.

Decides: when a log is opened, in which state a hosted replica is, when a failed replica is closed and opened
again, and which part of a log may be deleted. Leaves to others: which replicas a broker should have and where
their files are (the tenant), consensus (``raftlog.node``), and how a log is repaired (``raftlog.repair``).

Read ``tenant`` first: the interface of a state machine that is hosted. ``supervisor`` runs the tenants,
``hosted_replica`` has the states of a replica, ``opener`` opens logs, ``retention`` deletes old segments.
"""
