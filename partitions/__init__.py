"""Topics and partitions as users see them, on top of the replicated log.

Decides: what a produced batch must be like, when a produce is answered, what a fetch may see,
which batches are duplicates, where replicas are placed and how they move, how long records are kept,
how a damaged replica comes back. Leaves to others: consensus and disk (``raftlog``), HTTP (``api``),
consumer groups (``groups``).

Read ``values`` first, then ``replica`` (one replica of one partition) with ``producers`` (duplicates),
``acks`` (when it is answered) and ``reads``, ``manager`` (all of a broker's), ``gateway`` (any
partition from any broker) and ``controller`` (the metadata group). ``reassigner`` moves replicas,
``retention_keeper`` lets old segments go, ``sick_bay`` has failed replicas mended by ``repairer``.
"""
