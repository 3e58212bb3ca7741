"""Injects faults into a cluster of real processes under load, and reports a verdict (``raftlog chaos run``).

Data flows one way. A seed or a file gives a ``Scenario``. ``run`` starts brokers, proxies and the workload,
begins and ends the faults of the scenario, and reads all records again. The checkers (``chaos.checkers``)
check the history. A ``RunRecord`` has all results, and ``report`` draws it.

Decides: which faults a machine can inject, when they begin and end, and that each of them had an effect.
Leaves to others: what clients do (``chaos.workload``), what counts as an anomaly (``chaos.checkers``), and
how a process is started and killed (``chaos.cluster``).

Read ``scenario`` and ``record`` (the values), then ``run``; ``faults`` has one module for each family of
faults.
"""
