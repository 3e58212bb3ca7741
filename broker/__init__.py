"""Assembles one whole broker: its settings, its parts, and its process.

Decides: how the parts are assembled (``broker``), and which parts the listeners use (``ports``). Leaves to
others: the meaning of requests (``partitions``, ``groups``, ``transactions``, ``delayed``), replication
(``raftlog``), and HTTP (``api``).

Read ``broker`` (composition), ``ports`` and ``serving`` (the real parts behind the ports) first.
``coordinators`` connects groups, queues, transactions and delayed messages with partitions, ``metrics``
describes all parts, and ``process`` manages what the operating system provides: memory, descriptors, the
event loop, and logs.
"""
