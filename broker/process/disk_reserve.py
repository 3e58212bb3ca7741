"""Watches the free disk space, so that produce is refused before the disk is full.

A log recovers from a full disk in the middle of an append. Hard states, checkpoints and the metadata need
space, too: this is the reserve. Coordinators continue with half of the reserve. Clients may repeat leases and
commits without end, so these writes leave the other half for deletions. If the free space cannot be read, for
instance because the disk is no longer mounted, the disk counts as full, and its broker transfers its
leaderships.
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
    """Checks whether the filesystem of a directory has more than ``reserve_bytes`` free."""

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
        """The free bytes of the filesystem, measured at most a quarter of a second ago."""
        now = self._clock.monotonic()
        if now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._free_bytes = self._look()
        return self._free_bytes

    def has_room(self) -> bool:
        """True if more bytes than the reserve are free."""
        return self.free_bytes > self.reserve_bytes

    def has_reserve(self) -> bool:
        """True if more than half of the reserve was free at the last measurement; the other half is for
        deletions.

        Appends measure the free space. Before the first measurement the answer is False; a caller that then
        calls ``has_room`` measures.
        """
        return self._free_bytes > self.reserve_bytes // 2

    def _look(self) -> int:
        try:
            return self._filesystem.free_bytes(self._directory)
        except OSError as error:
            if self._log_limit.left_out("") is not None:
                _log.error("the free space of %s cannot be read: %s", self._directory, error)
            return 0
