"""What is committed in the partitions that clients use over HTTP, and what is known as an answer leaves."""

from __future__ import annotations

from typing import NamedTuple

from chaos.simulator.http.committed import Committed
from chaos.simulator.http.wire import Exchange
from chaos.simulator.machine import Machine
from chaos.simulator.records import GroupRecord
from chaos.simulator.simulated_cluster import SimulatedCluster
from raftlog.types import METADATA_GROUP, GroupId, TopicPartition


class KnownPartitions:
    """One run's. ``committed`` has the records of each partition that clients use."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.committed: dict[int, Committed] = {}  # by group
        self._groups: dict[TopicPartition, GroupId] = {}

    def group_of(self, target: TopicPartition) -> GroupRecord | None:
        """What is known of a partition's group."""
        if target not in self._groups:
            for machine in self.cluster.machines:
                topics = {} if machine.broker is None else machine.broker.controller.image.topics
                if target.topic in topics:
                    self._groups[target] = topics[target.topic].partitions[target.partition].group_id
        group_id = self._groups.get(target)
        return None if group_id is None else self.cluster.checker.groups.get(group_id)

    def committed_of(self, group: GroupRecord) -> Committed:
        """Its records, up to now."""
        committed = self.committed.setdefault(group.group_id, Committed())
        committed.extend(group)
        return committed

    def committed_to(self, group_id: int) -> None:
        """A commit index has moved; what retention deletes later must be read by then."""
        group = self.cluster.checker.groups.get(group_id)  # type: ignore[call-overload]
        if group is not None and group_id != METADATA_GROUP:
            self.committed_of(group)


class Answered(NamedTuple):
    """An exchange, and what is known of its partition as the answer leaves."""

    known: KnownPartitions
    machine: Machine
    exchange: Exchange
    target: TopicPartition
    group: GroupRecord
    committed: Committed

    def wrong(self, invariant: str, detail: str) -> None:
        """Report what the answer should not say."""
        asked = self.exchange
        where = f"{self.machine.name} {asked.method} {asked.path} {dict(asked.query)} {asked.status}"
        self.known.cluster.violated(invariant, f"{where}: {detail}")

    @property
    def end(self) -> int:
        """One past the last committed record."""
        return self.group.committed[-1].last + 1 if self.group.committed else 0
