"""One power loss, and others that only stand still or cannot be reached: nothing acknowledged is lost.

Of three brokers one stands aside while records are acknowledged by the other two. Then one of those loses its
power and the other stands aside. The first, which lacks the records, is alone with the one that comes back:
it must not lead, and what was acknowledged must be there. Systems that acknowledge before a sync lose here.
"""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from chaos.history import Outcome
from verification.crash_workload import TOPIC, Workload
from verification.simulator.convergence import Convergence
from verification.simulator.machine import Machine


class OnePowerLoss(Workload):
    """``absent`` lacks the records, ``cut`` loses its power, ``aside`` holds them and cannot help."""

    def __init__(self, absent: int, cut: int, aside: int, *, pauses: bool) -> None:
        super().__init__(None)
        self._absent, self._cut, self._aside = (self.machines[at - 1] for at in (absent, cut, aside))
        self.counted = self._absent
        self._pauses = pauses

    async def live(self) -> None:
        """The story, and what must hold in the end."""
        for machine in self.machines:
            machine.start()
        await self._create()
        await self._acknowledged(1)
        self._away(self._absent)
        await self._acknowledged(6)
        self._cut.lose_power()
        self._away(self._aside)
        self._back(self._absent)
        await asyncio.sleep(1.0)
        self._cut.start()
        await self._acknowledged(8)  # by the one that lacked the first, and the one that came back
        self._back(self._aside)
        self.faults.heal()
        convergence = Convergence(self)
        await convergence.reached()
        await convergence.settled()
        await convergence.read_everything()

    async def _acknowledged(self, wanted: int) -> None:
        while self.history.count(Outcome.ACKNOWLEDGED) < wanted:
            await self._send(TOPIC, to=self._cut)

    def _away(self, machine: Machine) -> None:
        if self._pauses:
            machine.pause()
            return
        others = [other.node for other in self.machines if other is not machine]
        self.network.block(
            [pair for other in others for pair in ((machine.node, other), (other, machine.node))], holds=False
        )

    def _back(self, machine: Machine) -> None:
        if self._pauses:
            machine.resume()
            return
        self.network.heal()
        if machine is self._absent:
            self._away(self._aside)


@pytest.mark.parametrize(("roles", "pauses"), [*zip(permutations((1, 2, 3)), 3 * (True, False), strict=True)])
def test_one_power_loss_loses_nothing(roles: tuple[int, int, int], pauses: bool) -> None:
    # requirement: P5
    story = OnePowerLoss(*roles, pauses=pauses)
    result = story.run()
    assert result.violations == ()
    assert result.acknowledged >= 8
