"""A broker's Raft groups at work: cores, logs, state machines and the network brought together.

Decides: in which order a core's ``Ready`` is carried out, when syncs run, what is batched into
one message, how much may be in flight. Leaves to others: consensus (``raftlog.core``), files
(``raftlog.storage``), what the entries mean (a ``StateMachine`` handed in).

Read ``raft_group`` (one member of one group) and ``group_host`` (all of a broker's) first;
``flusher`` runs the syncs, ``applier`` feeds the state machine, ``snapshot_transfer`` and ``catch_up``
bring up who is far behind, ``codec`` says what stands in a frame, ``calls`` are requests and answers
between brokers, ``tcp_transport`` carries the frames.
"""
