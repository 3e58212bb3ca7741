"""An unexpected error in the background work of a broker costs this work a pause, and the broker serves."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from broker.settings import Timing
from raftlog.node.group_host import GroupHost
from raftlog.types import GroupId
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import send_numbers, whole_broker

TIMING: Final = Timing(disk_age_interval_ms=1000, retention_check_interval_ms=1000)
PATIENCE_S: Final = 5.0
DUTIES: Final = {
    "CompactionManager.run",
    "ActiveController.run",
    "ConsumedPositions.run",
    "LoadMeter.run",
    "LostMarkers.run",
    "MetadataMembers.run",
    "PartitionRemover.run",
    "PeerAddresses.run",
    "PeerDisks.run",
    "PreferredLeaders.run",
    "ProgressKeeper.run",
    "Reassigner._run",
    "Registration.keep",
    "RepairScheduler.run",
    "ReplicaManager._ask_for_permits",
    "ReplicaManager._follow",
    "ReplicaManager._remove_leftovers_when_sure",
    "RetentionManager.run",
    "Scrubber.run",
    "Supervisor._open_waiting",
    "Trash.run",
}


@dataclass(eq=False)
class Interrupted:
    """Work of a broker into which an error is raised at one of its waits."""

    name: str
    error: Exception
    waits_before: int
    has_begun_again: bool = False  # its pause is over, and it waits for its work again

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        """Carry out the work; the error comes from what it awaits."""
        resume, waits = partial(work.send, None), 0
        with suppress(StopIteration):
            while True:
                awaited = resume()
                waits += 1
                self.has_begun_again = waits > self.waits_before + 2  # the pause is a wait, too
                if waits == self.waits_before + 1:
                    resume = partial(work.throw, self.error)
                    continue
                try:
                    yield awaited
                except BaseException as error:
                    resume = partial(work.throw, error)
                else:
                    resume = partial(work.send, None)


def _name_of(work: Coroutine[Any, Any, None]) -> str:
    duty = work.cr_frame.f_locals.get("duty")  # type: ignore[attr-defined]
    return str(getattr(work if duty is None else duty, "__qualname__", ""))


# requirement: F1
@pytest.mark.parametrize("waits_before", [0, 1])
@pytest.mark.parametrize("kind", [MemoryError, ValueError])
async def test_every_duty_begins_again_and_the_broker_serves(
    kind: type[Exception], waits_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: dict[str, Interrupted] = {}
    begin = GroupHost.begin

    def begin_interrupted(
        host: GroupHost, work: Coroutine[None, None, None], group: GroupId | None = None
    ) -> asyncio.Task[None]:
        name = _name_of(work)
        if group is not None or name not in DUTIES:
            return begin(host, work, group)
        found = interrupted[name] = Interrupted(name, kind(name), waits_before)
        return begin(host, found.run(work))

    monkeypatch.setattr(GroupHost, "begin", begin_interrupted)
    for constant, value in (
        ("raftlog.repair.scrubber.CYCLE_S_MIN", 2.0),
        ("broker.coordinators.lost_markers.LOOK_MS", 1000),
        ("partitions.reassignment.load_meter.MEASURED_S", 1.0),
    ):
        monkeypatch.setattr(constant, value)
    async with whole_broker(timing=TIMING) as whole, VirtualClient(whole.url) as client:
        assert interrupted.keys() == DUTIES

        await asyncio.sleep(PATIENCE_S)
        assert [each.name for each in interrupted.values() if not each.has_begun_again] == []
        assert whole.broker.host.duties.failures > 0
        await send_numbers(client, 3)
