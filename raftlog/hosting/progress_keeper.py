"""Stores the progress of a broker's replicas at intervals, and once more when the broker stops.

Decides: when progress is stored, and of which replicas: not of replicas that rejoin or have stopped, whose
last note stays. Leaves to others: the content of a note, and its file (``raftlog.storage.replica_progress``).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raftlog.node.blocking import RunBlocking
from raftlog.node.group_host import GroupHost
from raftlog.storage.replica_progress import Progress, ReplicaProgress, progress_of
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId

_log = logging.getLogger("raftlog.hosting")

AT_ONCE: Final = 500  # replicas per turn of the loop: about two milliseconds


class ProgressKeeper:
    """Stores the progress of one broker's replicas.

    For the event loop's thread; ``run_blocking`` writes the file.
    """

    def __init__(
        self, host: GroupHost, progress: ReplicaProgress, registry: ReplicaRegistry, run_blocking: RunBlocking
    ) -> None:
        self._host = host
        self._progress = progress
        self._registry = registry
        self._run_blocking = run_blocking

    async def run(self, interval_ms: int) -> None:
        """Store the progress of all replicas at this interval, until cancelled."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.keep()

    async def keep(self) -> None:
        """Store the progress of all replicas now; after a disk error the next interval tries again."""
        notes = await self._notes()
        try:
            await self._run_blocking(lambda: self._progress.keep(notes, self._registry.groups))
        except OSError as error:
            _log.warning("cannot store the progress of replicas; retrying at the next interval: %s", error)

    async def _notes(self) -> dict[GroupId, Progress]:
        notes: dict[GroupId, Progress] = {}
        for number, (group_id, group) in enumerate(list(self._host.groups.items()), 1):
            log = group.log
            if group.stopped is None and not group.is_rejoining and isinstance(log, SegmentedLog):
                is_only = group.membership.members == {group.node_id}
                notes[group_id] = progress_of(log, group.commit_index, is_only=is_only)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return notes
