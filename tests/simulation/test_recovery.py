"""A majority of a partition is gone for good: what the survivor holds is kept, the rest does not come back.

Five brokers, a partition on three of them. One stands aside while the other two acknowledge records without
it; then these two are lost. The log of the one is made the truth, by the public way. It may lose exactly what
the estimate left open, also where it dies in the midst of its recovery; and the old majority, when it comes
back, brings nothing of what was given up.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from broker.broker import Broker
from chaos.history import Outcome, Send
from partitions.metadata.image import PartitionInfo
from partitions.metadata.move_planner import MoveReplicas
from raftlog.errors import Conflict, RaftlogError
from raftlog.types import TopicPartition
from verification.crash_workload import KILL, ODDS, POWER_LOSS, TOPIC, Workload
from verification.simulator.convergence import Convergence
from verification.simulator.machine import Machine
from verification.simulator.placement_checks import misplaced

TARGET = TopicPartition(TOPIC, 0)
BROKERS = 5


class Recovery(Workload):
    """With ``dies_after`` the survivor dies once, so many disk operations after the phrase was known."""

    def __init__(self, dies_after: int | None = None, manner: str = KILL) -> None:
        super().__init__(None, odds=replace(ODDS, brokers=BROKERS, rates=(1.0,) * BROKERS))
        self.checked = [TARGET]
        self.given_up: list[Send] = []
        self.has_died = False
        self._dies_after = dies_after
        self._manner = manner
        self._phrase: str | None = None
        self._end = -1

    async def live(self) -> None:
        """The story, and what must hold in the end."""
        for machine in self.machines:
            machine.start()
        await self._until(lambda: all(machine.broker is not None for machine in self.machines))
        self._operator = self.machines[-1]
        await self.make_topic(TOPIC, 1, 3)
        await self._until(lambda: TOPIC in self._broker.controller.image.topics)
        assert self._operator.node not in self._partition.replicas
        *lost, survivor = (self.machines[node - 1] for node in self._partition.replicas)
        await self._acknowledged(4)
        survivor.kill()
        await self._acknowledged(3)  # without it
        for machine in lost:
            machine.kill()
        survivor.start()
        await self._until(lambda: not any(self._is_alive(machine) for machine in lost))
        await self._recover(survivor)
        await self._acknowledged(3)
        for machine in lost:  # what is dead should come back one at a time
            machine.start()
            await self._until(lambda back=machine: back.broker is not None and not misplaced(back))  # type: ignore[misc]
            await self._acknowledged(1)
        await self._move_back(survivor, *lost)
        await self._acknowledged(1)
        self.faults.heal()
        convergence = Convergence(self)
        await convergence.reached()
        await convergence.settled()
        await convergence.read_everything()

    async def _recover(self, survivor: Machine) -> None:
        """Ask until it is done; from then on what the estimate did not vouch for may be gone."""
        reviving = asyncio.get_running_loop().create_task(self._revive(survivor))
        while not self._partition.unsafe_recoveries:
            try:
                await self._client.ask(self._operator, self._ask_to_recover)
            except Conflict as error:
                phrase = error.details.get("confirm")
                if phrase != self._phrase and isinstance(phrase, str):
                    self._phrase, self._end = phrase, int(str(error.details["last_offset"]))
                    assert str(survivor.node) in phrase
                    self._strike(survivor)
            except RaftlogError:
                pass
            await asyncio.sleep(0.1)
        assert self._partition.replicas == (survivor.node,)
        self.given_up = [send for send in self.history.sends if (send.offset or 0) > self._end]
        self.history.sends = [send for send in self.history.sends if send not in self.given_up]
        await self._acknowledged(1)
        reviving.cancel()
        survivor.disk.dies_after = None

    async def _ask_to_recover(self, broker: Broker) -> PartitionInfo:
        return await broker.admin.recover_unsafely(TARGET, self._phrase, 1500)

    def _strike(self, survivor: Machine) -> None:
        if self._dies_after is not None:
            survivor.is_killed_in_a_change = self._manner == KILL
            survivor.disk.dies_after = survivor.disk.changes + self._dies_after

    async def _revive(self, survivor: Machine) -> None:
        while True:
            await asyncio.sleep(0.2)
            if not survivor.is_up:
                self.has_died = True
                survivor.start()

    async def _move_back(self, *machines: Machine) -> None:
        wish = MoveReplicas(TOPIC, 0, tuple(machine.node for machine in machines))
        while not self._has_moved(self._operator, wish):
            with contextlib.suppress(RaftlogError):
                await self._client.ask(
                    self._operator, lambda broker: broker.admin.change_replicas(wish, 1500)
                )
            await asyncio.sleep(0.5)

    async def _acknowledged(self, more: int) -> None:
        wanted = self.history.count(Outcome.ACKNOWLEDGED) + more
        while self.history.count(Outcome.ACKNOWLEDGED) < wanted:
            await self._send(TOPIC, to=self._operator)

    @property
    def _broker(self) -> Broker:
        assert self._operator.broker is not None
        return self._operator.broker

    @property
    def _partition(self) -> PartitionInfo:
        return self._broker.controller.image.topics[TOPIC].partitions[0]

    def _is_alive(self, machine: Machine) -> bool:
        return self._broker.controller.image.brokers[machine.node].alive


# requirement: F6
def test_a_recovery_gives_up_what_its_estimate_left_open_and_nothing_else() -> None:
    story = Recovery()
    assert story.run().violations == ()
    assert len(story.given_up) == 3
    values = {value for poll in story.history.final for _, value in poll.records}
    assert not values & {send.value for send in story.given_up}


# requirement: F6
@pytest.mark.parametrize(
    ("dies_after", "manner"), [(2, KILL), (8, POWER_LOSS), (14, KILL), (20, POWER_LOSS), (26, KILL)]
)
def test_a_survivor_that_dies_in_its_recovery_goes_on_with_it(dies_after: int, manner: str) -> None:
    story = Recovery(dies_after, manner)
    assert story.run().violations == ()
    assert story.has_died
    assert len(story.given_up) == 3
