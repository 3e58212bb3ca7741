"""Benchmarks that compare raftlog with other systems in one run on one machine, and the reliability report.

Decides: which figures are measured, and how systems are made comparable. Every system gets three nodes,
replication factor 3, prebuilt payloads and a raw-frame client, so that the servers are the limit; every
figure is the median of several rounds, and only ratios between systems are meaningful. ``reliability`` writes
the reliability report; ``long_runs`` measures its row of simulated hours.

Read ``load`` (the closed loop and the interface of a system), then one file per system:
``raftlog_system``, ``nats``, ``kafka``, ``pysyncobj_log``, ``ceiling``; ``report`` writes the page.
"""
