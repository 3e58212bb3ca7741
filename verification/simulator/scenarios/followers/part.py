"""The readers of one run that read from any replica."""

from __future__ import annotations

from verification.simulator.faults import Faults
from verification.simulator.part import Actor, Part
from verification.simulator.scenarios.followers.actors import follower_readers
from verification.simulator.scenarios.followers.odds import FollowerOdds
from verification.simulator.scenarios.transactions.part import Transactions
from verification.simulator.simulated_cluster import SimulatedCluster


class Followers(Part):
    """Readers of plain partitions, and of transactional partitions if the run has transactions."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: FollowerOdds) -> None:
        self._cluster = cluster
        self._odds = odds

    def actors(self) -> list[Actor]:
        """Return all readers."""
        transactions = self._cluster.part(Transactions)
        story = None if transactions is None else transactions.story
        return [*follower_readers(self._cluster, self._odds, story)]
