"""Whole brokers with an older copy that others hear late or not at all, and with a link that is long broken.

The random levels of the simulator restore copies that take part at once, and heal links within seconds: these
stories stay with one trouble for long, and look at the cluster while it lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from chaos.history import Outcome
from raftlog.storage.recovery import has_lived
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import METADATA_GROUP, TopicPartition
from verification.crash_workload import ODDS, TOPIC, Workload
from verification.simulator.convergence import Convergence
from verification.simulator.lost_files import DATA
from verification.simulator.machine import Machine
from verification.simulator.odds import FORGET

RUNS_MAX = 4
UNHEARD_STARTS = 6
CUT_S = 30.0
LONE_RECORDS = 10  # more than the leader has alone
LATE_S = 1.5  # the delay of what an older copy says
SOON_S = 5.0  # every broker serves again so soon


class Story(Workload):
    """Brokers with one topic of one partition; ``trouble`` is what happens to them."""

    def __init__(self, brokers: int, trouble: Callable[[Story], Awaitable[None]]) -> None:
        super().__init__(None, odds=replace(ODDS, brokers=brokers, rates=(1.0,) * brokers, timed=(FORGET,)))
        self.checked = [TopicPartition(TOPIC, 0)]
        self._trouble = trouble

    async def live(self) -> None:
        """The trouble, and what must hold in the end."""
        await self.up(*self.machines)
        await self.make_topic(TOPIC, 1, 3)
        await self.acknowledged(3, by=self.machines[0])
        await self._trouble(self)
        self.faults.heal()
        convergence = Convergence(self)
        await convergence.reached()
        await convergence.settled()
        await convergence.read_everything()

    async def up(self, *machines: Machine) -> None:
        """Start these."""
        for machine in machines:
            machine.start()
        await self.until(lambda: all(machine.broker is not None for machine in machines))

    async def until(self, holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
        """Wait; a violation if it takes longer."""
        await self._until(holds, timeout_s)

    async def acknowledged(self, more: int, *, by: Machine) -> None:
        """Produce at one broker until so many more records are acknowledged."""
        wanted = self.history.count(Outcome.ACKNOWLEDGED) + more
        while self.history.count(Outcome.ACKNOWLEDGED) < wanted:
            await self._send(TOPIC, to=by)

    async def copy_of_a_lone_leader(self) -> dict[str, bytes]:
        """Copy the disk of ``counted``, which leads and is cut off with records that no other broker gets.

        On return these have made way for more records of another leader.
        """
        await self._lead()
        others = [machine for machine in self.machines if machine is not self.counted]
        links = [(self.counted.node, other.node) for other in others]
        self.network.block([*links, *(link[::-1] for link in links)], holds=False)
        for _ in range(3):
            await self._send(TOPIC, to=self.counted, timeout_ms=100)
        files = self.counted.disk.image()
        await self.acknowledged(LONE_RECORDS, by=others[0])
        self.network.heal()
        await self.until(self._is_level)
        return files

    def restore(self, machine: Machine, files: dict[str, bytes]) -> None:
        """An older copy takes the place of all files of a machine that is off."""
        self.checker.files_lost(machine, DATA)
        FakeFilesystem.remove_tree(machine.disk, DATA)
        machine.disk.load(files)
        folders = {path.rpartition("/")[0] for path in files}
        machine.older_copies = {folder for folder in folders if has_lived(machine.disk, folder)}

    def age_known(self, by: Machine, of: Machine) -> int:
        """Of the disk of one machine, as another one knows it."""
        known = None if by.broker is None else by.broker.disks.age.known_of(of.node)
        return -1 if known is None else known.age


async def _an_older_copy_that_starts_alone(story: Story) -> None:
    copied, behind, other = story.machines
    copied.kill()
    files = copied.disk.image()
    known = story.age_known(behind, copied)
    await story.up(copied)
    await story.until(lambda: story.age_known(behind, copied) > known + 1)
    assert copied.broker is not None
    copied.copied_disk = copied.broker.disks.age.disk.disk_id
    behind.lose_power()
    await story.acknowledged(5, by=other)  # without it
    copied.kill()
    other.kill()
    behind.is_kept_off = other.is_kept_off = True  # no machine that begins again starts them
    story.restore(copied, files)
    for _ in range(UNHEARD_STARTS):
        copied.start()
        await asyncio.sleep(2)  # it ages, as far as it may, and nobody hears it
        copied.kill()
    behind.start()
    copied.start()
    await asyncio.sleep(10)  # the two are a majority, and lack the five records
    other.start()


# requirement: F6
def test_an_older_copy_that_has_started_often_and_unheard_elects_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftlog.storage.disk_age.RUNS_MAX", RUNS_MAX)
    story = Story(3, _an_older_copy_that_starts_alone)
    assert story.run().violations == ()


async def _an_older_copy_that_is_told_late(story: Story) -> None:
    copied, others = story.counted, [machine for machine in story.machines if machine is not story.counted]
    files = await story.copy_of_a_lone_leader()
    assert copied.broker is not None
    copied.copied_disk, age = copied.broker.disks.age.disk.disk_id, copied.broker.disks.age.disk.age
    await story.until(lambda: all(story.age_known(other, copied) > age for other in others))
    copied.kill()
    story.restore(copied, files)
    for other in others:
        story.network.slow((copied.node, other.node), LATE_S)
    await asyncio.sleep(LATE_S)  # the delay grows until then
    copied.start()  # it hears heartbeats before the others hear the name of its disk
    for _ in range(5):
        await story.acknowledged(1, by=others[0])
        await asyncio.sleep(LATE_S / 5)


# requirement: F6
def test_an_older_copy_that_is_told_late_commits_nothing_that_only_it_has() -> None:
    story = Story(3, _an_older_copy_that_is_told_late)
    assert story.run().violations == ()


async def _one_broken_link(story: Story) -> None:
    def leads_metadata(machine: Machine) -> bool:
        return machine.broker is not None and machine.broker.host.groups[METADATA_GROUP].is_ready

    controller = next(machine for machine in story.machines if leads_metadata(machine))
    for cut_off in [machine for machine in story.machines if machine is not controller]:
        pair = (controller.node, cut_off.node)
        story.network.block([pair, pair[::-1]], holds=False)
        began = story.loop.now
        while story.loop.now < began + CUT_S / 4:
            for machine in story.machines:
                asked = story.loop.now
                await story.acknowledged(1, by=machine)
                if story.loop.now > asked + SOON_S:
                    story.violated("L2 a healed cluster works", f"{machine.name} served late")
            await asyncio.sleep(1)
        story.network.heal()


# requirement: F1
def test_every_broker_serves_while_one_link_of_the_controller_is_broken() -> None:
    story = Story(4, _one_broken_link)
    assert story.run().violations == ()
