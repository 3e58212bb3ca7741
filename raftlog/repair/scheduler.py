"""Looks after the replicas of one broker that have failed, until they serve again.

Decides: when a repair is tried, and how many at a time. A damaged replica is mended at once and, where
that fails, again after a pause. One whose disk has failed waits, then its files are read and it is opened
anew: opening writes again what was not surely durable. Leaves to others: the repair (``repairer``),
opening and closing (``replica_manager``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from raftlog.errors import LogCorrupt
from raftlog.repair.repairer import Repairer
from raftlog.repair.target import CannotMend, NeedsRebuild, Patient
from raftlog.types import TopicPartition

_log = logging.getLogger("raftlog.repair")

LOOK_S: Final = 0.5
AGAIN_S: Final = 2.0
AFTER_FAILED_DISK_S: Final = 30.0
AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Sick:
    """A replica that should work here and does not."""

    target: TopicPartition
    error: BaseException
    patient: Patient


class Ward(Protocol):
    """The part of ``manager.PartitionManager`` that is needed here."""

    def sick(self) -> Sequence[Sick]:
        """Replicas that have failed."""

    async def admit(self, sick: Sick) -> None:
        """Close it, so that nobody else has its files open."""

    def discharge(self, sick: Sick) -> None:
        """Open it again."""

    def note(self, sick: Sick, trouble: str) -> None:
        """Say why it is not served yet."""

    def needs_rebuild(self, sick: Sick, reason: str) -> None:
        """No other replica can help, nor can it begin anew: somebody must look after it."""


class SickBay:
    """One broker's. All on the event loop's thread."""

    def __init__(self, repairer: Repairer, ward: Ward) -> None:
        self._repairer = repairer
        self._ward = ward
        self._due: dict[TopicPartition, float] = {}
        self._treated: dict[TopicPartition, asyncio.Task[None]] = {}

    @property
    def under_repair(self) -> int:
        """How many replicas are being mended."""
        return len(self._treated)

    async def run(self) -> None:
        """Look after them until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                for sick in self._ward.sick():
                    if self._is_due(sick, loop.time()) and len(self._treated) < AT_ONCE:
                        self._begin(sick)
        finally:
            tasks = list(self._treated.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self, target: TopicPartition) -> None:
        """Return once nobody mends it any more, on no thread: its files may be removed or opened."""
        task = self._treated.get(target)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._due.pop(target, None)

    def _is_due(self, sick: Sick, now: float) -> bool:
        if sick.target in self._treated:
            return False
        patience = 0.0 if isinstance(sick.error, LogCorrupt) else AFTER_FAILED_DISK_S
        return now >= self._due.setdefault(sick.target, now + patience)

    def _begin(self, sick: Sick) -> None:
        task = asyncio.get_running_loop().create_task(self._treat(sick))
        self._treated[sick.target] = task
        task.add_done_callback(lambda done: self._ended(sick, done))

    def _ended(self, sick: Sick, task: asyncio.Task[None]) -> None:
        del self._treated[sick.target]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: the repair broke down", sick.target, exc_info=error)
            self._due[sick.target] = asyncio.get_running_loop().time() + AFTER_FAILED_DISK_S

    async def _treat(self, sick: Sick) -> None:
        await self._ward.admit(sick)
        _log.warning("%s is being mended: %s", sick.target, sick.error)
        try:
            await self._repairer.mend(sick.patient)
        except (CannotMend, OSError) as trouble:
            self._repairer.counts.attempts_failed += 1
            self._due[sick.target] = asyncio.get_running_loop().time() + AGAIN_S
            self._ward.note(sick, f"{sick.error}; not mended yet: {trouble}")
            if isinstance(trouble, NeedsRebuild):
                self._ward.needs_rebuild(sick, str(trouble))
            return
        self._due.pop(sick.target, None)
        _log.warning("%s is mended", sick.target)
        self._ward.discharge(sick)
