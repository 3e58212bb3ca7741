"""Topics and partitions as users see them, on top of the replicated log.

Decides: which produced batches are valid, when a produce request is answered, which records a fetch may see,
which batches are duplicates, where replicas are placed and how they move, how long records are kept. Leaves
to others: consensus, disk and repair (``raftlog``), HTTP (``api``), consumer groups (``groups``).

Read ``values`` first. ``metadata`` holds the topics and the placement of replicas, ``replica`` is one replica
of one partition, ``routing`` finds the leader of any partition, ``hosting`` runs all replicas of one broker,
and ``reassignment`` moves replicas.
"""
