"""The outside of a broker: settings in, a running broker out, HTTP on top, and the command line.

Decides: how the parts are put together (``broker``), what HTTP and the command line look like.
Leaves to others: what the requests mean (``partitions``), replication (``raftlog``).

Read ``broker`` (composition), ``app`` (the HTTP application) and ``cli`` first. Plain requests are read by
``plain_http``, all others by aiohttp; ``gathering`` lets small JSON requests share a batch.
"""
