"""Any partition from any broker.

``gateway`` asks the local replica when it leads, else the broker that does, one hop away, which
``raftlog.node.leader_search`` finds. ``rpc`` has the bodies of the requests between brokers.
"""
