"""Access to any partition from any broker.

``gateway`` calls the local replica if it leads, else the leader's broker, which
``raftlog.node.leader_search`` finds. ``confirmed_topics`` asks the active controller before a topic counts as
missing. ``local`` offers the replicas of this broker to the gateway and to the other brokers, ``statuses``
collects the statuses of a topic's partitions, ``closest`` orders the replicas for reads from followers.
``relay`` relays calls between brokers that cannot reach each other. ``rpc`` has the bodies of the calls
between brokers, ``partition_calls`` declares the calls to a leader and says how to add a call.
"""
