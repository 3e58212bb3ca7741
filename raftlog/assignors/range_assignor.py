"""``range``: a run of consecutive partitions of each topic for each of its members."""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.assignors.values import Plan, Subscription, subscribers
from raftlog.types import TopicPartition


class RangeAssignor:
    """Kafka's RangeAssignor: partitions of equal number of several topics go to one member.

    Topic by topic, the partitions are cut into as many runs as the topic has members. Runs are equally
    long; where the count does not divide, the first members get one partition more, of every topic.
    """

    name = "range"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """A plan, as ``Assignor`` says."""
        rows: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, interested in subscribers(members, partition_counts).items():
            length, longer = divmod(partition_counts[topic], len(interested))
            start = 0
            for place, member in enumerate(interested):
                end = start + length + (place < longer)
                rows[member].extend(TopicPartition(topic, number) for number in range(start, end))
                start = end
        return {member: frozenset(row) for member, row in rows.items()}
