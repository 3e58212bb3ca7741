"""Watches the free disk space, so that produce is refused before the disk is full.

A log recovers from a full disk in the middle of an append, but hard states, checkpoints and the metadata need
space, too, which is the reserve. Coordinators continue with half of the reserve: leases and commits, which
clients may repeat without end, leave the other half for deletions. A disk whose free space cannot be read,
for instance because it is no longer mounted, counts as full: its broker hands its leaderships over.
"""

from __future__ import annotations

import logging
from typing import Final

from raftlog.clock import Clock
from raftlog.log_limit import LogLimit
from raftlog.storage.filesystem import Filesystem

LOOK_EVERY_S: Final = 0.25
_log = logging.getLogger("raftlog.broker")


class DiskReserve:
    """Checks if a directory's filesystem has more than ``reserve_bytes`` free."""

    def __init__(self, filesystem: Filesystem, directory: str, reserve_bytes: int, clock: Clock) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self.reserve_bytes = reserve_bytes
        self._clock = clock
        self._looked_s = -LOOK_EVERY_S
        self._free_bytes = 0
        self._log_limit = LogLimit(clock.monotonic)

    @property
    def free_bytes(self) -> int:
        """Free bytes of the filesystem, at most a quarter of a second old."""
        now = self._clock.monotonic()
        if now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._free_bytes = self._look()
        return self._free_bytes

    def has_room(self) -> bool:
        """True if more than the reserve is free."""
        return self.free_bytes > self.reserve_bytes

    def has_reserve(self) -> bool:
        """True if more than half of the reserve was free at the last look; the other half is for deletions.

        Appends look at the disk. Before the first look the answer is False; a caller that then calls
        ``has_room`` looks.
        """
        return self._free_bytes > self.reserve_bytes // 2

    def _look(self) -> int:
        try:
            return self._filesystem.free_bytes(self._directory)
        except OSError as error:
            if self._log_limit.left_out("") is not None:
                _log.error("the free space of %s cannot be read: %s", self._directory, error)
            return 0
