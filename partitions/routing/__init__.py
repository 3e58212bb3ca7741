"""Any partition from any broker.

``gateway`` asks the local replica when it leads, else the broker that does, one hop away; ``leader_search``
is one request's search for it. ``rpc`` has the bodies of the requests between brokers.
"""
