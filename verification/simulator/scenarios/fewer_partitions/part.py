"""A topic whose partitions are decommissioned, and the rules that are checked on its records at the end."""

from __future__ import annotations

from collections import Counter
from typing import Final

from verification.simulator.faults import Faults
from verification.simulator.part import Actor, Config, Part, Topic
from verification.simulator.scenarios.fewer_partitions.actors import (
    TOPIC,
    Known,
    PartitionAdministrator,
    Producer,
    Reader,
)
from verification.simulator.scenarios.fewer_partitions.odds import FewerOdds
from verification.simulator.simulated_cluster import SimulatedCluster

PARTITIONS: Final = 3
PRODUCERS: Final = 2
ADMINISTRATORS: Final = 2
REFUSED: Final = "F5 a refused record is not stored"
ONCE: Final = "F5 an acknowledged record is stored once, until it is deleted"
UNIQUE: Final = "T5 an offset names one record"
REFUSALS: Final = "refused by a decommissioned partition"
REMOVALS: Final = "partition removed"


class FewerPartitions(Part):
    """The topic whose partitions are decommissioned in one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: FewerOdds) -> None:
        self._cluster = cluster
        self._known = Known()

    def topics(self, config: Config) -> list[Topic]:
        """Return the topic of the scenario, which keeps its records for ever."""
        return [Topic(TOPIC, PARTITIONS, {"retention_ms": -1})]

    def actors(self) -> list[Actor]:
        """Return the producers and administrators of the topic."""
        cluster, known = self._cluster, self._known
        return [
            *(Producer(cluster, f"fewer p{number}", known) for number in range(PRODUCERS)),
            *(PartitionAdministrator(cluster, f"fewer admin {n}", known) for n in range(ADMINISTRATORS)),
        ]

    async def check(self) -> dict[str, int]:
        """Read all records at the end of a run, and check them.

        Returns counts of records and actions, by name.
        """
        reader = Reader(self._cluster, "fewer reader")
        found = await reader.read_all()
        counts: Counter[str] = Counter()
        for (partition, offset), value in found.items():
            counts[value] += 1
            self._note(partition, offset, value)
            if partition in self._known.refused.get(value, ()):
                self._cluster.violated(REFUSED, f"{value} was refused by {partition}, and is at {offset}")
        for value, (partition, offset) in self._known.acknowledged.items():
            self._note(partition, offset, value)
            is_deleted = offset < self._known.asked.get(partition, 0)
            if found.get((partition, offset)) != value and not is_deleted:
                detail = f"{value} was acknowledged at {partition}/{offset}, where there is "
                self._cluster.violated(ONCE, f"{detail}{found.get((partition, offset))}")
            if counts[value] > 1:
                self._cluster.violated(ONCE, f"{value} is there {counts[value]} times")
        refusals = sum(map(len, self._known.refused.values()))
        return {REFUSALS: refusals, REMOVALS: reader.removals}

    def _note(self, partition: int, offset: int, value: str) -> None:
        known = self._known.at.setdefault((partition, offset), value)
        if known != value:
            self._cluster.violated(UNIQUE, f"{partition}/{offset} is {known} and {value}")
