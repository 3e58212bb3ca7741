"""The most recently used files of active segments, which stay open between their uses, up to a maximum
number.

A log has one active segment, and a broker may have many more logs than a process may open files. A segment
has a weak reference to its file (``Segment``). A file stays open while it has a place here, while a reader
uses it, and, after an append, until its log and the log's syncs have put the data on the disk. A file closes
itself when its last user releases it, so a file with unsynced writes stays open in any case. The reason: a
failed writeback is reported to the descriptors that were open when it happened, and a sync of a file that was
opened later may not see the failure.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakSet

from raftlog.storage.filesystem import File


class HeldFiles:
    """Keeps at most ``count_max`` files open. Safe for use by many threads."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._recent: OrderedDict[File, None] = OrderedDict()  # the least recently used first
        self._open: WeakSet[File] = WeakSet()  # these files, and released ones that are still in use
        self._lock = threading.Lock()

    def hold(self, file: File) -> bool:
        """Keep a file that was just used open; the least recently used files lose their places for it.

        Returns whether the file is held: False if the maximum number of open files wait for syncs or have
        readers.
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
        """Release a file that is closed, or that will receive no more appends."""
        with self._lock:
            self._recent.pop(file, None)
            self._open.discard(file)

    def make_room(self) -> None:
        """Release the less recently used half of the files: the process is short of descriptors."""
        with self._lock:
            for _ in range((len(self._recent) + 1) // 2):
                self._recent.popitem(last=False)
