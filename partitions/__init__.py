"""Topics and partitions as users see them, on top of the replicated log.

Decides: what a produced batch must be like, when a produce is answered, what a fetch may see, which batches
are duplicates, where replicas are placed and how they move, how long records are kept. Leaves to others:
consensus, disk and repair (``raftlog``), HTTP (``api``), consumer groups (``groups``).

Read ``values`` first. ``metadata`` says which topics and replicas there are, ``replica`` is one replica of
one partition, ``routing`` finds the leader of any partition, ``hosting`` runs all replicas of one broker, and
``reassignment`` moves them.
"""
