"""The brokers of the testing kit: real ones, in processes of their own, with faults that a test asks for.

``raftlog.testing`` runs this package as one process beside the tests. That process imports the broker once
and forks a process for each broker, so that starting one takes a fraction of a second.

Decides: how a broker of the kit differs from one that is deployed. Its wall clock can be moved
(``raftlog.testing.shifted_clock``), its disk can be slow and lose what was not synced (``disk``), its links
can be cut (``network``), and its elections are quick (``supervisor``). No setting of a deployed broker does
any of this. Leaves to others: what tests call (``raftlog.testing.kit``), the broker itself (``api.server``).

Read ``supervisor`` first.
"""
