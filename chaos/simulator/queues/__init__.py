"""A queue over whole brokers: workers receive jobs through any broker, and some never answer.

Decides: what these workers do, and what must hold of the jobs (J1 to J7). Leaves to others: the faults of
brokers (``chaos.simulator.faults``), and the logs as bytes (``chaos.simulator.originals``).

``judge`` follows the committed records of ``__offsets``, of the topic and of the dead letters, without code
of the coordinator, and compares them with each other and with what workers have said and were told.
``level`` is the whole.
"""
