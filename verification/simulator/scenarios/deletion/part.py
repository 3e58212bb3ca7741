"""The deletion of records by a client in one run."""

from __future__ import annotations

from verification.simulator.faults import Faults
from verification.simulator.part import Actor, Part
from verification.simulator.scenarios.deletion.actors import Deleter
from verification.simulator.scenarios.deletion.odds import DeletionOdds
from verification.simulator.simulated_cluster import SimulatedCluster


class Deletion(Part):
    """The part of a run that has one client that deletes records."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: DeletionOdds) -> None:
        self._cluster = cluster

    def actors(self) -> list[Actor]:
        """Return the client that deletes records."""
        return [Deleter(self._cluster)]
