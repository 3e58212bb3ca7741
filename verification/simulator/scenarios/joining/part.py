"""Brokers that join in one run, and brokers that are removed permanently."""

from __future__ import annotations

from partitions.metadata.image import MetadataImage
from verification.simulator.faults import Faults
from verification.simulator.part import Part, Timed
from verification.simulator.scenarios.joining.joins import Joins
from verification.simulator.scenarios.joining.odds import JOIN, REMOVE, JoinOdds
from verification.simulator.scenarios.joining.removals import Removals
from verification.simulator.simulated_cluster import SimulatedCluster


class Joining(Part):
    """The joining and the removed brokers of one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: JoinOdds) -> None:
        self._joins = Joins(cluster, odds)
        self._removals = Removals(cluster, faults.counts)

    def faults(self) -> dict[str, Timed]:
        """Return the faults of the scenario: operators admit brokers, and remove brokers."""
        return {JOIN: self._joins.join, REMOVE: self._removals.remove}

    def may_happen(self, kind: str) -> bool:
        """Return whether the run has a broker that may join, or that may be removed."""
        return (kind != JOIN or self._joins.may_join) and (kind != REMOVE or bool(self._removals.candidates))

    def shown(self, image: MetadataImage) -> None:
        """Check that a removed broker holds no replica and stays removed."""
        self._removals.shown(image)

    async def faults_ended(self) -> None:
        """Wait until all joining brokers have started and all requests for removals are answered."""
        await self._joins.settled()
        await self._removals.settled()

    async def check(self) -> dict[str, int]:
        """Check that the processes of removed brokers are kept out."""
        await self._removals.kept_out()
        return {}
