"""Finds damage in the log of any Raft group, and repairs it from the group's other logs.

Decides: what of a directory is sound, which bytes take the place of the others, when a repair is tried again.
Leaves to others: which replicas a broker holds, and how they are closed and opened (``partitions.hosting``).

Read ``scheduler`` (failed replicas of one broker), then ``repairer`` (one of them) and ``verify`` (what is
sound). ``service`` is what a peer tells about its log, ``segment_writer`` writes segments anew. Where entries
are missing everywhere, ``full_resync`` fetches a whole log; ``donor`` says when one may take another's place,
``new_log`` puts it there. ``scrubber`` reads all files in the background, with the steps of ``scrubbing``.
"""
