"""Watches the free disk space, so that produce is refused before the disk is full.

A log recovers from a full disk in the middle of an append, but hard states, checkpoints and the metadata need
space, too, which is the reserve.
"""

from __future__ import annotations

from typing import Final

from raftlog.clock import Clock
from raftlog.storage.filesystem import Filesystem

LOOK_EVERY_S: Final = 0.25


class DiskReserve:
    """Checks if a directory's filesystem has more than ``reserve_bytes`` free."""

    def __init__(self, filesystem: Filesystem, directory: str, reserve_bytes: int, clock: Clock) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self.reserve_bytes = reserve_bytes
        self._clock = clock
        self._looked_s = -LOOK_EVERY_S
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """At most a quarter of a second old."""
        now = self._clock.monotonic()
        if now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._free_bytes = self._filesystem.free_bytes(self._directory)
        return self._free_bytes

    def has_room(self) -> bool:
        """True if more than the reserve is free."""
        return self.free_bytes > self.reserve_bytes
