"""Consumer groups: members, assignments of partitions, and committed offsets.

Decides: membership, generations, assignments and committed offsets. Their records are in the compacted topic
``__offsets``, together with the records of queues. Leaves to others: the jobs of a group that uses a topic as
a queue (``queues``), replication (``raftlog``), serving the topic (``partitions``), assignment strategies
(``raftlog.assignors``) and HTTP (``api``).

Read ``records`` (the stored records) first. ``membership`` and ``generations`` decide about one group,
``coordination`` about all groups of a partition, and ``commits`` about offsets, without IO. ``coordinator``
appends records and answers requests, ``service`` finds the coordinator from any broker, and ``offsets``
compares committed offsets with partitions.
"""
