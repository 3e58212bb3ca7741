"""Benchmarks beside other systems, in one run on one machine.

Decides: what is measured and how systems are made comparable. Every system gets three nodes,
replication factor 3, prebuilt payloads and a raw-frame client, so that the servers are the limit;
every figure is the median of several rounds, and what counts is the ratio between systems.

Read ``load`` (the closed loop and what a system must offer), then one file per system:
``raftlog_system``, ``nats``, ``kafka``, ``pysyncobj_log``, ``ceiling``; ``report`` writes the page.
"""
