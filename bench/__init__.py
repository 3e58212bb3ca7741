"""Benchmarks of raftlog and other systems, in one run on one machine, and the reliability report.

Decides: what is measured and how systems are made comparable. Every system gets three nodes, replication
factor 3, prebuilt payloads and a raw-frame client, so that the servers are the limit; every figure is the
median of several rounds, and only ratios between systems are meaningful. ``reliability`` writes the
reliability report, with ``long_runs`` for the row of simulated hours.

Read ``load`` (the closed loop and the interface of a system), then one file per system:
``raftlog_system``, ``nats``, ``kafka``, ``pysyncobj_log``, ``ceiling``; ``report`` writes the page.
"""
