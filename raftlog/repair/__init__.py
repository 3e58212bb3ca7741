"""Finds damage in the log of any Raft group, and repairs it from the group's other logs.

Decides: which files and entries of a log are intact, which bytes replace damaged ones, when a repair is
retried. Leaves to others: which replicas a broker holds, and how they are closed and opened
(``raftlog.hosting``).

Read ``scheduler`` (failed replicas of one broker), then ``repairer`` (the repair of one replica) and
``verify`` (the intact part of a log). ``service`` answers the requests of peers about a log,
``segment_writer`` rewrites segments. If entries are missing on all peers, ``full_resync`` fetches a whole
log; ``donor`` decides whose log may replace another, ``new_log`` installs the fetched log. ``scrubber`` reads
all files in the background, with the steps of ``scrubbing``.
"""
