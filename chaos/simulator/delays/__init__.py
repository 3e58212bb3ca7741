"""Delayed messages over whole brokers: clients send, cancel and reschedule them through any broker.

Decides: what these clients do, and what must hold of delayed messages (D1 to D7). Leaves to others: the
faults of brokers (``chaos.simulator.faults``), and the logs as bytes (``chaos.simulator.originals``).

``judge`` follows the committed records of ``__delayed`` and of the target topics, without code of the
coordinator, and compares them with each other and with the answers. ``level`` is the whole.
"""
