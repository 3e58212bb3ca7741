"""Assembles one whole broker: its settings, its parts, and its process.

Decides: how the parts are assembled (``broker``), and which parts the protocols (HTTP) can use (``ports``).
Leaves to others: the meaning of requests (``partitions``, ``groups``, ``transactions``, ``delayed``),
replication (``raftlog``), and HTTP (``api``).

Read ``broker`` (composition), ``ports`` and ``serving`` (the real parts behind the ports) first.
``coordinators`` connects groups, queues, transactions and delayed messages with partitions, and ``metrics``
describes all of these parts. ``listeners`` accepts connections within their limits, for any protocol.
``process`` tunes what the operating system gives: memory, descriptors, the event loop, and logs.
"""
