"""The metadata group: which brokers live, which topics exist, where their replicas are.

Its leader is the active controller, its log the metadata storage. Decides: placement, liveness,
topic and producer ids. Leaves to others: replicating its log (``raftlog``) and opening the
replicas that it placed (``partitions.hosting.replica_manager``).

Read ``image`` (all metadata at one version) and ``commands`` first, then ``machine`` (what each
command does), ``planner``, ``move_planner``, ``names`` and ``placement`` (requests to commands),
``liveness``, ``silence`` and ``healing`` (brokers that are silent, and what follows), and last
``service`` (the controller as any broker calls it) with ``requests`` (what brokers ask each other),
``registration`` and ``shown_image``, and ``active`` (the duties of the one that leads).
``balancing`` makes plans, ``plans`` is their states and
``balancer`` when they are made; ``features`` is what brokers of two releases may use. ``source`` is the
metadata as the rest of a broker sees it, ``topic_config`` the settings of a topic,
``producer_ids`` the ids that are given to producers.
"""
