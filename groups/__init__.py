"""Consumer groups: members, assignments of partitions, and committed offsets.

Decides: membership, generations, assignments and committed offsets, which are records of the compacted topic
``__offsets``, like the jobs of queues. Leaves to others: the jobs of a group that uses a topic as a queue
(``queues``), replication (``raftlog``), serving the topic (``partitions``), plans (``raftlog.assignors``) and
HTTP (``api``).

Read ``records`` (the stored records) first. ``membership`` and ``generations`` decide about one group,
``coordination`` about all groups of a partition, and ``commits`` about offsets, without IO. ``coordinator``
appends and answers, ``service`` finds the coordinator from any broker, and ``offsets`` compares committed
offsets with partitions.
"""
