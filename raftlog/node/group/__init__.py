"""One member of one Raft group: a core, its log and its state machine, driven.

Decides: in which order a core's ``Ready`` is carried out, and which listener is called. Leaves to others:
when syncs run and which groups there are (``raftlog.node``).

Read ``raft_group`` first. ``recent_entries`` holds a batch from its proposal until it is applied; from there
``log_writer`` brings it into the log, ``replication`` sends it and ``applier`` feeds it to the state machine.
``pending_requests`` keeps who else waits for what, ``leader_requests`` is what one may ask of a leader,
``view`` what one may ask of any replica, ``snapshot_transfer`` brings up a replica whose log ends before the
leader's begins. ``ports`` says what a group needs of its broker.
"""
