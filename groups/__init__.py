"""Consumer groups: which member reads which partition, and which offsets a group has committed.

Decides: membership, generations, assignments and committed offsets, which are records of the compacted topic
``__offsets``, as jobs of queues are. Leaves to others: the jobs of a group that works off a topic as a queue
(``queues``), replication (``raftlog``), serving the topic (``partitions``), plans (``raftlog.assignors``) and
HTTP (``api``).

Read ``records`` first: what is stored. ``membership`` and ``generations`` decide about one group,
``coordination`` about all groups of a partition, and ``commits`` about offsets, without IO. ``coordinator``
appends and answers, ``service`` finds the coordinator from any broker, and ``offsets`` compares committed
offsets with partitions.
"""
