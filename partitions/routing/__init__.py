"""Any partition from any broker.

``gateway`` asks the local replica when it leads, else the broker that does, one hop away; ``leader_search``
is one request's search for it. ``forwarding`` and ``replica_calls`` are the bodies of those requests between
brokers.
"""
