"""Opens the log of a hosted replica.

Decides: whether a replica without files is a new one or has lost them. Leaves to others: when to open
(``supervisor``), what the bytes mean (``raftlog.storage``). Waits for the disk: never on the event loop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from raftlog.clock import Clock
from raftlog.core.membership import NOBODY
from raftlog.core.ready import HardState
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.recovery import has_lived
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import GroupId

_log = logging.getLogger("raftlog.hosting")


@dataclass(frozen=True, slots=True)
class LogOpener:
    """The parts of a broker that opening a log needs."""

    filesystem: Filesystem
    data_directory: str
    clock: Clock
    registry: ReplicaRegistry

    def open(
        self, group_id: GroupId, directory: str, settings: LogSettings, *, is_rejoining: bool
    ) -> SegmentedLog:
        """Open the log, or create it.

        A log that is created with ``is_rejoining`` counts towards no quorum until it holds what its leader
        has; so does one that takes the place of lost files, and with ``is_rejoining`` an older copy of one.
        Raises ``LogCorrupt`` and ``OSError``.
        """
        is_lost = self.registry.has_held(group_id) and not has_lived(self.filesystem, directory)
        if is_lost:
            _log.warning("%s is gone, and was opened here before: this replica rejoins its group", directory)
        log = SegmentedLog.open(
            self.filesystem, directory, settings, self.clock, is_rejoining=is_lost or is_rejoining
        )
        if is_rejoining and self.registry.is_older_copy(group_id):
            try:
                _let_rejoin(log)
            except OSError:
                log.close()
                raise
        return log

    def is_older_copy(self, group_id: GroupId, directory: str) -> bool:
        """Whether the replica has files, and they are an older copy: it has lost votes and entries."""
        return self.registry.is_older_copy(group_id) and has_lived(self.filesystem, directory)


def _let_rejoin(log: SegmentedLog) -> None:
    """It keeps what it has, as a replica that is being restored. Raises ``OSError``."""
    hard_state = log.restored(NOBODY).hard_state
    if not hard_state.is_rejoining:
        _log.warning("%s is an older copy: this replica rejoins its group", log.directory)
        log.save_hard_state(HardState(hard_state.term, hard_state.voted_for, is_rejoining=True))
        make_durable(log)


def make_durable(log: SegmentedLog) -> None:
    """Sync what was written to a log that no group has yet. Raises ``OSError``."""
    sync = log.take_sync()
    if sync is not None:
        sync.run()
        log.sync_finished(sync)
