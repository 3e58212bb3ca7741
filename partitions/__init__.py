"""Topics and partitions as users see them, on top of the replicated log.

Decides: what a produced batch must be like, when a produce is answered, what a fetch may see,
which batches are duplicates, where replicas are placed. Leaves to others: consensus and disk
(``raftlog``), HTTP (``api``), consumer groups (``groups``).

Read ``values`` first, then ``replica`` (one replica of one partition) with ``producers`` (duplicates),
``acks`` (when it is answered) and ``reads``, ``manager`` (all of a broker's), ``gateway`` (any
partition from any broker) and ``controller`` (the metadata group).
"""
