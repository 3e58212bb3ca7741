"""A broker's running Raft groups: connects cores, logs, state machines and the network.

Decides: when syncs run, which messages share a frame, how many requests and bytes may be in flight, what time
it is. Leaves to others: consensus (``raftlog.core``), files (``raftlog.storage``), the meaning of entries (a
``StateMachine`` from the caller).

Read ``group.raft_group`` (one member of one group) and ``group_host`` (all groups of a broker) first;
``flusher`` runs the syncs, ``codec`` encodes frames, ``rpc`` carries requests and answers between brokers,
``network`` transports the frames.
"""
