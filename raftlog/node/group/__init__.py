"""One member of one Raft group: the driver of a core, its log and its state machine.

Decides: in which order a core's ``Ready`` is carried out, and which listener is called. Leaves to others:
when syncs run and which groups exist (``raftlog.node``).

Read ``raft_group`` first. ``recent_entries`` holds a batch from its proposal until it is applied; then
``log_writer`` writes it to the log, ``replication`` sends it and ``applier`` passes it to the state machine.
``pending_requests`` holds all other waiting requests, ``leader_requests`` the requests that only a leader
answers. ``view`` has the queries that any replica answers. ``snapshot_transfer`` brings a replica up to date
whose log ends before the leader's log begins. ``ports`` lists what a group needs from its broker.
"""
