"""Listeners of a broker for clients: their sockets, and the limits that all connections share.

Decides: how many connections are open, how many bytes they may hold, and the order in which they end when the
broker stops. Leaves to others: the protocol of a connection, such as HTTP (``api.connections``).

Read ``listener`` (the sockets) and ``connection_limit`` first. ``tls_accepts`` accepts connections with TLS,
``tls_transport`` counts their unsent bytes, ``tls`` decides which files may be used, and ``tls_reloads``
loads changed files. ``open_connections`` ends idle connections, and ``handing_over`` moves a connection to
another protocol. ``admission`` and ``answers_in_flight`` limit memory.
"""
