"""Brokers that die or are taken out of use in one run, and the replicas that must be restored."""

from __future__ import annotations

from verification.simulator.faults import Faults
from verification.simulator.part import Part, Timed
from verification.simulator.scenarios.healing.deaths import BrokerDeaths
from verification.simulator.scenarios.healing.decommissions import Decommissions
from verification.simulator.scenarios.healing.odds import DECOMMISSION, DIE, HealingOdds
from verification.simulator.simulated_cluster import SimulatedCluster


class Healing(Part):
    """The dying and decommissioned brokers of one run; see the package."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: HealingOdds) -> None:
        self.decommissions = Decommissions(cluster, odds)
        self.deaths = BrokerDeaths(cluster, odds, faults.counts, self.decommissions)

    async def prepared(self) -> None:
        """Return once all brokers may get replicas."""
        await self.deaths.registered()

    def faults(self) -> dict[str, Timed]:
        """Return the faults of the scenario: a broker dies, or is decommissioned."""
        return {DIE: self.deaths.die, DECOMMISSION: self.decommissions.decommission}

    def may_happen(self, kind: str) -> bool:
        """Whether a broker may die or be decommissioned now."""
        if kind == DIE:
            return bool(self.deaths.candidates)
        return kind != DECOMMISSION or bool(self.decommissions.candidates)

    async def faults_ended(self) -> None:
        """Return once all replicas are restored and the dead brokers start."""
        await self.deaths.restored()
