"""The outer layers of a broker: HTTP, and the command line.

Decides: the form of HTTP and of the command line. Leaves to others: a broker's parts and settings
(``broker``), the meaning of requests (``partitions``), replication (``raftlog``).

Read ``app`` (the request pipeline) and ``server`` (the process) first. Requests arrive through
``connections``; a module of ``resources`` handles them with the shared tools of ``http``. ``cli`` is the
command line. ``markup`` and ``svg`` write pages for people, without a template library.
"""
