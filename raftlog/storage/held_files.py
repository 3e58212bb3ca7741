"""The files of active segments that stay open between their uses: the most recently used, up to a bound.

A log has one active segment, and a broker may have many more logs than a process may open files. A
segment refers to its file weakly (``Segment``); what keeps the file open is its place here, or whoever
works with it: a reader, or a log and its syncs from an append until that is on the disk. A file closes
itself when its last user releases it, so one with unsynced writes stays open whatever happens here. That
matters: a failed writeback is reported to the descriptors that were open when it happened, and a sync of
a file that was opened later may not see it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakSet

from raftlog.storage.filesystem import File


class HeldFiles:
    """At most ``count_max`` open files. Safe for use by many threads."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._recent: OrderedDict[File, None] = OrderedDict()  # the least recently used first
        self._open: WeakSet[File] = WeakSet()  # these, and those that only others hold by now
        self._lock = threading.Lock()

    def hold(self, file: File) -> bool:
        """Hold a file that was used just now; the least recently used files make room for it.

        Whether it is held: not if as many as may be open wait for their syncs, or have readers.
        """
        with self._lock:
            if file not in self._recent and file not in self._open:
                while len(self._open) >= self.count_max and self._recent:
                    self._recent.popitem(last=False)
                if len(self._open) >= self.count_max:
                    return False
                self._open.add(file)
            self._recent[file] = None
            self._recent.move_to_end(file)
            return True

    def let_go(self, file: File) -> None:
        """Release a file that is closed, or will not be appended to any more."""
        with self._lock:
            self._recent.pop(file, None)
            self._open.discard(file)

    def make_room(self) -> None:
        """The process is short of descriptors: close the less recently used half."""
        with self._lock:
            for _ in range((len(self._recent) + 1) // 2):
                self._recent.popitem(last=False)
