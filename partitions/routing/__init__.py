"""Any partition from any broker.

``gateway`` asks the local replica when it leads, else the broker that does, one hop away, which
``raftlog.node.leader_search`` finds. ``confirmed_topics`` asks the active controller before a topic counts as
missing. ``local`` offers the replicas of this broker to the gateway and to the other brokers, ``statuses``
gathers the state of a topic's partitions, ``closest`` orders the replicas for reads of followers. ``relay``
passes calls on between brokers that do not reach each other. ``rpc`` has the bodies of the calls between
brokers, ``partition_calls`` declares the calls to a leader and says how to add a call.
"""
