"""Notes at intervals how far the replicas of a broker have got, and once more when it stops.

Decides: when, and of which replicas: not of those that rejoin or have stopped, whose last note stays. Leaves
to others: what a note says, and its file (``raftlog.storage.replica_progress``).
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

AT_ONCE: Final = 500  # replicas, between two turns of the loop: about two milliseconds


class ProgressKeeper:
    """One broker's. On the event loop's thread; the file is written with ``run_blocking``."""

    def __init__(
        self, host: GroupHost, progress: ReplicaProgress, registry: ReplicaRegistry, run_blocking: RunBlocking
    ) -> None:
        self._host = host
        self._progress = progress
        self._registry = registry
        self._run_blocking = run_blocking

    async def run(self, interval_ms: int) -> None:
        """Note the progress of all replicas at this interval."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.keep()

    async def keep(self) -> None:
        """Note it now; a disk that does not let it is tried again with the next interval."""
        notes = await self._notes()
        try:
            await self._run_blocking(lambda: self._progress.keep(notes, self._registry.groups))
        except OSError as error:
            _log.warning("the progress of replicas could not be noted, it is tried again: %s", error)

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
