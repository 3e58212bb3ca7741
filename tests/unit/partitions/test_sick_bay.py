"""A treatment that is ended is over on its thread, too, before the files are anybody else's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import cast

from partitions.repair_service import RepairService
from partitions.repairer import Patient, Repairer
from partitions.sick_bay import Sick, SickBay
from raftlog.errors import LogCorrupt
from raftlog.node.group_host import GroupHost
from raftlog.storage.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId, TopicPartition

TARGET = TopicPartition("t", 0)


class BlockedFiles(FakeFilesystem):
    """Files whose listing hangs until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()
        self.is_over = False

    def list_directory(self, path: str) -> list[str]:
        """Hang first."""
        self.is_reached.set()
        self.may_go_on.wait(10)
        self.is_over = True
        return []


class OneBed:
    """A ward with one replica that has failed."""

    def __init__(self) -> None:
        self.is_discharged = False

    def sick(self) -> Sequence[Sick]:
        """It."""
        return [Sick(TARGET, LogCorrupt("damaged"), Patient(GroupId(7), "/data/t/0", ()))]

    def admit(self, sick: Sick) -> None:
        """Nothing to close."""

    def discharge(self, sick: Sick) -> None:
        """Must not come."""
        self.is_discharged = True

    def note(self, sick: Sick, trouble: str) -> None:
        """Nobody reads it."""

    def needs_rebuild(self, sick: Sick, reason: str) -> None:
        """Nobody reads it."""


def test_a_treatment_ends_with_its_work_on_the_disk() -> None:
    async def scenario() -> None:
        files, ward = BlockedFiles(), OneBed()
        service = cast("RepairService", None)  # not reached
        bay = SickBay(Repairer(cast("GroupHost", None), files, asyncio.to_thread, service), ward)
        running = asyncio.create_task(bay.run())
        await asyncio.to_thread(files.is_reached.wait, 10)
        for ending in (asyncio.create_task(bay.end(TARGET)), running):
            if ending is running:
                running.cancel()
            done, _ = await asyncio.wait([ending], timeout=0.05)
            assert not done
            assert not files.is_over
        files.may_go_on.set()
        await asyncio.gather(running, return_exceptions=True)
        assert files.is_over
        assert bay.under_repair == 0
        assert not ward.is_discharged

    asyncio.run(scenario())
