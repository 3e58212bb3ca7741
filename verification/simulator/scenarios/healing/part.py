"""The brokers of one run that die or are decommissioned, and the replicas that must be restored."""

from __future__ import annotations

from verification.simulator.faults import Faults
from verification.simulator.part import Part, Timed
from verification.simulator.scenarios.healing.deaths import BrokerDeaths
from verification.simulator.scenarios.healing.decommissions import Decommissions
from verification.simulator.scenarios.healing.odds import DECOMMISSION, DIE, HealingOdds
from verification.simulator.simulated_cluster import SimulatedCluster


class Healing(Part):
    """The deaths and decommissions of brokers in one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: HealingOdds) -> None:
        self.decommissions = Decommissions(cluster, odds)
        self.deaths = BrokerDeaths(cluster, odds, faults.counts, self.decommissions)

    async def prepared(self) -> None:
        """Return once all brokers are registered and may get replicas."""
        await self.deaths.registered()

    def faults(self) -> dict[str, Timed]:
        """Return the faults of the scenario: a broker dies, or an operator decommissions a broker."""
        return {DIE: self.deaths.die, DECOMMISSION: self.decommissions.decommission}

    def may_happen(self, kind: str) -> bool:
        """Return whether a broker may die, or be decommissioned, now."""
        if kind == DIE:
            return bool(self.deaths.candidates)
        return kind != DECOMMISSION or bool(self.decommissions.candidates)

    async def faults_ended(self) -> None:
        """Wait until all replicas are restored, then start the dead brokers."""
        await self.deaths.restored()
