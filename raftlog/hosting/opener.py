"""Opens the log of a hosted replica.

Decides: whether a replica without files is new or has lost them, and whether files are an older copy.
Leaves to others: when to open (``supervisor``), the meaning of the bytes (``raftlog.storage``). Waits for the
disk: never call it on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from raftlog.clock import Clock
from raftlog.core.ready import HardState
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.recovery import has_lived
from raftlog.storage.replica_progress import ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import GroupId

_log = logging.getLogger("raftlog.hosting")


@dataclass(frozen=True, slots=True)
class LogOpener:
    """The parts of a broker that are needed to open a log."""

    filesystem: Filesystem
    data_directory: str
    clock: Clock
    registry: ReplicaRegistry
    progress: ReplicaProgress

    def open(
        self,
        group_id: GroupId,
        directory: str,
        settings: LogSettings,
        *,
        is_rejoining: bool,
        is_only: Callable[[], bool],
    ) -> SegmentedLog:
        """Open the log, or create it.

        A log that is created with ``is_rejoining`` counts towards no quorum until it holds its leader's log.
        So does a log that replaces lost files, and an older copy. An older copy of the only replica is served
        as it is, since no replica has more entries: ``is_only`` is called in that case, and may raise. Raises
        ``LogCorrupt`` and ``OSError``.
        """
        is_of_older_disk = self.is_older_copy(group_id, directory)
        is_lost = self.registry.has_held(group_id) and not has_lived(self.filesystem, directory)
        if is_lost:
            _log.warning("%s was open before, but is missing: this replica rejoins its group", directory)
        log = SegmentedLog.open(
            self.filesystem, directory, settings, self.clock, is_rejoining=is_lost or is_rejoining
        )
        try:
            if lost := self._what_is_lost(group_id, log, is_of_older_disk=is_of_older_disk):
                _let_rejoin(log, lost, is_only=is_only())
        except BaseException:
            log.close()
            raise
        return log

    def is_older_copy(self, group_id: GroupId, directory: str) -> bool:
        """Whether the replica has files, and they belong to an older copy of the whole disk."""
        return self.registry.is_older_copy(group_id) and has_lived(self.filesystem, directory)

    def was_only(self, group_id: GroupId) -> bool:
        """Whether the replica was the only member of its group according to its last progress note."""
        noted = self.progress.of(group_id)
        return noted is not None and noted.is_only and not self.registry.is_older_copy(group_id)

    def _what_is_lost(self, group_id: GroupId, log: SegmentedLog, *, is_of_older_disk: bool) -> str:
        """The reason why a log is an older copy; empty if it may be the newest, or is being
        restored already.
        """
        if log.durable_hard_state.is_rejoining:
            return ""
        if is_of_older_disk:
            return "the whole disk is an older copy"
        noted = self.progress.of(group_id)
        return "" if noted is None else noted.missing_in(log)


def _let_rejoin(log: SegmentedLog, lost: str, *, is_only: bool) -> None:
    """Mark a log as rejoining its group, if the group has other replicas. Raises ``OSError``."""
    if is_only:
        _log.error(
            "%s is an older copy (%s): records may be lost, and no other replica has them",
            log.directory,
            lost,
        )
        return
    _log.warning("%s is an older copy (%s): this replica rejoins its group", log.directory, lost)
    hard_state = log.durable_hard_state
    log.save_hard_state(HardState(hard_state.term, hard_state.voted_for, is_rejoining=True))
    make_durable(log)


def make_durable(log: SegmentedLog) -> None:
    """Sync the writes to a log that no group uses yet. Raises ``OSError``."""
    sync = log.take_sync()
    if sync is not None:
        sync.run()
        log.sync_finished(sync)
