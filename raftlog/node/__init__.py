"""A broker's Raft groups at work: cores, logs, state machines and the network brought together.

Decides: when syncs run, what is batched into one message, how much may be in flight, what time it is.
Leaves to others: consensus (``raftlog.core``), files (``raftlog.storage``), what the entries mean (a
``StateMachine`` handed in).

Read ``group.raft_group`` (one member of one group) and ``group_host`` (all of a broker's) first; ``flusher``
runs the syncs, ``codec`` says what stands in a frame, ``rpc`` are requests and answers between brokers,
``network`` carries the frames.
"""
