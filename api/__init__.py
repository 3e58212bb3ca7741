"""The outside of a broker: settings in, a running broker out, HTTP on top, and the command line.

Decides: how the parts are put together (``broker``), what HTTP and the command line look like.
Leaves to others: what the requests mean (``partitions``), replication (``raftlog``).

Read ``broker`` (composition) and ``app`` (the boundary that every request passes) first. A request comes in
through ``connections``, and is answered by a module of ``resources``, with what ``http`` offers to all of
them. ``cli`` is the command line.
"""
