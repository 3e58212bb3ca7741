"""Keeps this broker's copy of the metadata log whole: opened, repaired from the peers, brought back.

Decides: when the log is opened again. A damaged one is repaired first, however long that takes; one whose
disk has failed is read and opened anew after a pause, as other replicas are (``scheduler``). Meanwhile the
broker goes by the newest metadata that it has seen. Leaves to others: the repair (``repairer``), taking part
in the group (``controller.service``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from raftlog.errors import LogCorrupt
from raftlog.repair.repairer import Repairer
from raftlog.repair.scheduler import AFTER_FAILED_DISK_S, LOOK_S
from raftlog.repair.target import CannotRepair, RepairTarget
from raftlog.storage.log_storage import LogStorage

_log = logging.getLogger("raftlog.repair")

AGAIN_S: Final = 1.0


class Member(Protocol):
    """The part of ``controller.service.Controller`` that is needed here."""

    failure: BaseException | None

    async def start(self, log: LogStorage) -> None:
        """Take part in the metadata group. Raises ``LogCorrupt``."""

    async def leave(self) -> None:
        """Take part no more; the log is closed."""


class MetadataSupervisor:
    """One broker's. All on the event loop's thread."""

    def __init__(
        self,
        member: Member,
        repairer: Repairer,
        repair_target: RepairTarget,
        open_log: Callable[[], Awaitable[LogStorage]],
    ) -> None:
        self._member = member
        self._repairer = repairer
        self._repair_target = repair_target
        self._open_log = open_log
        self.trouble = ""  # what keeps this broker from taking part in the metadata group

    async def join(self) -> None:
        """Return once this broker takes part in the metadata group. Raises ``OSError``."""
        self._forget()
        while True:
            try:
                await self._member.start(await self._open_log())
            except LogCorrupt as damage:
                if not self.trouble:
                    self._say(f"the metadata log is being repaired: {damage}")
            else:
                self._forget()
                self.trouble = ""
                return
            try:
                await self._repairer.repair(self._repair_target)
            except CannotRepair as trouble:
                self._say(f"the metadata log is not repaired yet: {trouble}")
            await asyncio.sleep(AGAIN_S)

    def _say(self, trouble: str) -> None:
        """Once, as long as it is the same."""
        if self.trouble != trouble:
            self.trouble = trouble
            _log.error("%s", trouble)

    async def run(self) -> None:
        """Bring it back whenever it has failed, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            failure = self._member.failure
            if not isinstance(failure, (LogCorrupt, OSError)):
                continue
            if not isinstance(failure, LogCorrupt):
                await asyncio.sleep(AFTER_FAILED_DISK_S)
            await self._member.leave()
            try:
                await self.join()
            except OSError as error:
                _log.error("the metadata log cannot be opened yet: %s", error)
            else:
                _log.warning("this broker takes part in the metadata group again")

    def _forget(self) -> None:
        """The log was closed, or opened: its files are not as peers were told while it was not open."""
        self._repairer.service.forget(self._repair_target.directory)
