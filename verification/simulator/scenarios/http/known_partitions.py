"""Provides the records that are committed at the moment of a response, for partitions that clients use over
HTTP.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.types import METADATA_GROUP, GroupId, TopicPartition
from verification.simulator.machine import Machine
from verification.simulator.records import GroupRecord
from verification.simulator.scenarios.http.committed import Committed
from verification.simulator.scenarios.http.wire import Exchange
from verification.simulator.simulated_cluster import SimulatedCluster


class KnownPartitions:
    """The partitions that clients use in one run. ``committed`` has the committed records of each
    partition.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.committed: dict[int, Committed] = {}  # by group
        self._groups: dict[TopicPartition, GroupId] = {}

    def group_of(self, target: TopicPartition) -> GroupRecord | None:
        """Return the checker's record of a partition's group."""
        if target not in self._groups:
            for machine in self.cluster.machines:
                topics = {} if machine.broker is None else machine.broker.controller.image.topics
                if target.topic in topics:
                    self._groups[target] = topics[target.topic].partitions[target.partition].group_id
        group_id = self._groups.get(target)
        return None if group_id is None else self.cluster.checker.groups.get(group_id)

    def committed_of(self, group: GroupRecord) -> Committed:
        """Return the committed records of a group, including records that were committed a moment ago."""
        committed = self.committed.setdefault(group.group_id, Committed())
        committed.extend(group)
        return committed

    def committed_to(self, group_id: int) -> None:
        """Decode the records below a new commit index before retention deletes them."""
        group = self.cluster.checker.groups.get(group_id)  # type: ignore[call-overload]
        if group is not None and group_id != METADATA_GROUP:
            self.committed_of(group)


class Answered(NamedTuple):
    """A request with its response, and the state of its partition at the moment of the response."""

    known: KnownPartitions
    machine: Machine
    exchange: Exchange
    target: TopicPartition
    group: GroupRecord
    committed: Committed

    def wrong(self, invariant: str, detail: str) -> None:
        """Report a violation in the response."""
        asked = self.exchange
        where = f"{self.machine.name} {asked.method} {asked.path} {dict(asked.query)} {asked.status}"
        self.known.cluster.violated(invariant, f"{where}: {detail}")

    @property
    def end(self) -> int:
        """The offset after the last committed record."""
        return self.group.committed[-1].last + 1 if self.group.committed else 0
