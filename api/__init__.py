"""The outer layers of a broker: settings, the assembled broker, HTTP, and the command line.

Decides: how the parts are assembled (``broker``), the form of HTTP and of the command line.
Leaves to others: the meaning of requests (``partitions``), replication (``raftlog``).

Read ``broker`` (composition) and ``app`` (the request pipeline) first. Requests arrive through
``connections`` and are handled by a module of ``resources`` with the shared tools of ``http``. ``cli`` is the
command line.
"""
