"""Runs the brokers of the testing kit: real brokers, as separate processes, with faults that a test requests.

``raftlog.testing`` runs this package as one process beside the tests. That process imports the broker once
and forks a process for each broker, so that a start takes a fraction of a second.

Decides: how a broker of the kit differs from a deployed broker. Its wall clock can be moved
(``raftlog.testing.shifted_clock``), its disk can be slow and lose unsynced data (``disk``), its links can be
cut (``network``), and its elections are quick (``supervisor``). No setting of a deployed broker can do this.
Leaves to others: the interface for tests (``raftlog.testing.kit``), the broker itself (``api.server``).

Read ``supervisor`` first.
"""
