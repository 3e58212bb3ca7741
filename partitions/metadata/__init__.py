"""The metadata group: its replicated state holds the brokers, the topics and the placement of replicas.

The leader of this group is the active controller. Decides: placement, liveness, topic and producer ids.
Leaves to others: replicating the metadata log (``raftlog``) and opening the placed replicas
(``partitions.hosting.replica_manager``).

Read ``image`` (all metadata at one version) and ``commands`` first, then ``machine`` (the effect of each
command), ``planner``, ``move_planner``, ``names`` and ``placement`` (requests to commands), ``liveness``,
``silence`` and ``healing`` (silent brokers and the moves that follow), and last ``service`` (the controller
as any broker calls it) with ``requests`` (calls between brokers), ``registration`` and ``shown_image``, and
``active`` (the duties of the active controller). ``balancing`` makes plans, ``plans`` has the states of a
plan, ``balancer`` decides when a plan is made; ``features`` lists the features of each release. ``source`` is
the metadata as the rest of a broker sees it, ``topic_config`` the settings of a topic, ``producer_ids`` the
ids given to producers.
"""
