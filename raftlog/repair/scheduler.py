"""Repairs and reopens the failed replicas of one broker.

Decides: when a repair is tried, and how many repairs run at a time. A damaged replica is repaired at once
and, after a failure, again after a pause. If a replica's disk has failed, the replica waits; then its files
are read and it is opened again: opening rewrites entries that may not be durable. A replica that stopped for
lack of memory, descriptors or threads needs no repair: it is opened again after a pause. Leaves to others:
the repair (``repairer``), opening and closing (``hosting.supervisor``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from raftlog.errors import LogCorrupt
from raftlog.exhaustion import exhaustion
from raftlog.repair.repairer import Repairer
from raftlog.repair.target import CannotRepair, NeedsOperator, RepairTarget
from raftlog.types import METADATA_GROUP, GroupId

_log = logging.getLogger("raftlog.repair")

LOOK_S: Final = 0.5
AGAIN_S: Final = 2.0
AFTER_FAILED_DISK_S: Final = 30.0
AT_ONCE: Final = 2  # in addition to the metadata log, which waits for no other


@dataclass(frozen=True, slots=True)
class FailedReplica:
    """A replica that should run on this broker and does not."""

    name: str
    error: BaseException
    repair_target: RepairTarget

    @property
    def group_id(self) -> GroupId:
        """The id of the replica's Raft group."""
        return self.repair_target.group_id


class Supervisor(Protocol):
    """Closes and opens the replicas of one broker: implemented by ``raftlog.hosting.supervisor``."""

    def failed(self) -> Sequence[FailedReplica]:
        """The replicas that should run on this broker and have failed."""

    async def take_offline(self, failed: FailedReplica) -> None:
        """Close a replica, so that only the repair has its files open."""

    def bring_online(self, failed: FailedReplica) -> None:
        """Open a replica again after its repair."""

    def note(self, failed: FailedReplica, trouble: str) -> None:
        """Report why a replica does not serve yet, as text for people."""

    def needs_operator(self, failed: FailedReplica, reason: str) -> None:
        """Report that an operator must act: no other replica can help, and a full resync is impossible."""


class RepairScheduler:
    """Repairs the failed replicas of one broker. For the event loop's thread only."""

    def __init__(self, repairer: Repairer, supervisor: Supervisor) -> None:
        self._repairer = repairer
        self._supervisor = supervisor
        self._due: dict[GroupId, float] = {}
        self._repairing: dict[GroupId, asyncio.Task[None]] = {}

    @property
    def under_repair(self) -> int:
        """The number of replicas that are being repaired."""
        return len(self._repairing)

    async def run(self) -> None:
        """Repair failed replicas until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                for failed in self._supervisor.failed():
                    has_turn = len(self._repairing) < AT_ONCE or failed.group_id == METADATA_GROUP
                    if self._is_due(failed, loop.time()) and has_turn:
                        self._begin(failed)
        finally:
            tasks = list(self._repairing.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self, group_id: GroupId) -> None:
        """Return once no repair of a group runs on any thread, so that its files may be removed or opened."""
        task = self._repairing.get(group_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._due.pop(group_id, None)

    def _is_due(self, failed: FailedReplica, now: float) -> bool:
        if failed.group_id in self._repairing:
            return False
        if isinstance(failed.error, LogCorrupt):
            patience = 0.0
        else:
            patience = AFTER_FAILED_DISK_S if exhaustion(failed.error) is None else AGAIN_S
        return now >= self._due.setdefault(failed.group_id, now + patience)

    def _begin(self, failed: FailedReplica) -> None:
        task = asyncio.get_running_loop().create_task(self._repair(failed))
        self._repairing[failed.group_id] = task
        task.add_done_callback(lambda done: self._ended(failed, done))

    def _ended(self, failed: FailedReplica, task: asyncio.Task[None]) -> None:
        del self._repairing[failed.group_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: the repair failed unexpectedly", failed.name, exc_info=error)
            self._due[failed.group_id] = asyncio.get_running_loop().time() + AFTER_FAILED_DISK_S

    async def _repair(self, failed: FailedReplica) -> None:
        await self._supervisor.take_offline(failed)
        if exhaustion(failed.error) is not None:
            self._due.pop(failed.group_id, None)
            self._supervisor.bring_online(failed)
            return
        _log.warning("%s is being repaired: %s", failed.name, failed.error)
        try:
            await self._repairer.repair(failed.repair_target)
        except (CannotRepair, OSError) as trouble:
            self._repairer.counts.attempts_failed += 1
            self._due[failed.group_id] = asyncio.get_running_loop().time() + AGAIN_S
            self._supervisor.note(failed, f"{failed.error}; not repaired yet: {trouble}")
            if isinstance(trouble, NeedsOperator):
                self._supervisor.needs_operator(failed, str(trouble))
            return
        self._due.pop(failed.group_id, None)
        _log.warning("%s is repaired", failed.name)
        self._supervisor.bring_online(failed)
