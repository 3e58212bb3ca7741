"""Opens the log of a hosted replica with what this disk remembers of the replica's group.

Decides: whether a replica without files is a new one or has lost them, and with which term, vote and entries
it begins where an earlier incarnation was deleted. Leaves to others: when to open (``supervisor``), what the
bytes mean (``raftlog.storage``). Waits for the disk: runs away from the event loop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from raftlog.clock import Clock
from raftlog.core.membership import NOBODY
from raftlog.hosting.tenant import TenantLog
from raftlog.storage import tombstones
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.recovery import has_lived
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import GroupId

_log = logging.getLogger("raftlog.hosting")


@dataclass(frozen=True, slots=True)
class LogOpener:
    """What opening needs to know of its broker."""

    filesystem: Filesystem
    data_directory: str
    clock: Clock
    registry: ReplicaRegistry

    def open(
        self, group_id: GroupId, directory: str, settings: LogSettings, *, is_rejoining: bool
    ) -> TenantLog:
        """Open the log, or create it.

        A log that is created with ``is_rejoining`` counts towards no quorum until it holds what its leader
        has; so does one that takes the place of lost files. Raises ``LogCorrupt`` and ``OSError``.
        """
        is_lost = self.registry.has_held(group_id) and not has_lived(self.filesystem, directory)
        if is_lost:
            _log.warning("%s is gone, and was opened here before: this replica rejoins its group", directory)
        tombstone = tombstones.load(self.filesystem, self.data_directory, group_id)
        log = SegmentedLog.open(
            self.filesystem, directory, settings, self.clock, is_rejoining=is_lost or is_rejoining
        )
        if tombstone is None:
            return TenantLog(log)
        known = log.restored(NOBODY).hard_state
        if tombstone.hard_state.term > known.term:
            log.save_hard_state(replace(tombstone.hard_state, is_rejoining=known.is_rejoining))
            make_durable(log)
        return TenantLog(log, tombstone.last)


def make_durable(log: SegmentedLog) -> None:
    """Sync what was written to a log that no group has yet. Raises ``OSError``."""
    sync = log.take_sync()
    if sync is not None:
        sync.run()
        log.sync_finished(sync)
