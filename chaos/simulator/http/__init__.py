"""Production clients and the production HTTP server in a simulated cluster, connected by simulated TCP.

Decides: the behaviour of sockets (``streams``) and clients (``producers``, ``readers``, ``raw_producers``,
``raw_readers``), and the checks of every response (``wire``, ``checker``). Leaves to others: brokers and
their faults (``machine``, ``faults``), and the relations between several responses (``chaos.checkers``).

Begin with ``side`` and ``clients``, which add all of this to a run.
"""
