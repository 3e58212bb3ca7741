"""``roundrobin``: the partitions of all topics, dealt to the members in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from raftlog.assignors.values import Plan, Subscription, in_order, subscribers
from raftlog.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's RoundRobinAssignor: with equal subscriptions, no member gets two partitions more than another.

    The turn goes on from topic to topic, and passes over members that do not subscribe the topic: with
    different subscriptions the plan may be uneven.
    """

    name = "roundrobin"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """A plan, as ``Assignor`` says."""
        rows: dict[str, list[TopicPartition]] = {member: [] for member in members}
        places = {member: place for place, member in enumerate(in_order(members))}
        turn = 0  # the place that is next
        for topic, interested in subscribers(members, partition_counts).items():
            first = bisect_left(interested, turn, key=places.__getitem__)
            for number in range(partition_counts[topic]):
                member = interested[(first + number) % len(interested)]
                rows[member].append(TopicPartition(topic, number))
                turn = places[member] + 1
        return {member: frozenset(row) for member, row in rows.items()}
