"""The assignors that every client and every broker has, by name. ``range`` and ``roundrobin`` are here."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from raftlog.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from raftlog.assignors.values import Assignor, Plan, Subscription, in_order, subscribers
from raftlog.types import TopicPartition


class RangeAssignor:
    """Kafka's RangeAssignor: partitions with one number, of several topics, go to one member.

    The partitions of each topic are cut into as many runs as the topic has members. Runs are equally long; if
    the count does not divide evenly, the first members get one more partition of every topic.
    """

    name = "range"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """Return a plan, as ``Assignor.assign`` specifies."""
        rows: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, interested in subscribers(members, partition_counts).items():
            length, longer = divmod(partition_counts[topic], len(interested))
            start = 0
            for place, member in enumerate(interested):
                end = start + length + (place < longer)
                rows[member].extend(TopicPartition(topic, number) for number in range(start, end))
                start = end
        return {member: frozenset(row) for member, row in rows.items()}


class RoundRobinAssignor:
    """Kafka's RoundRobinAssignor: with equal subscriptions, members' counts of partitions differ by at most
    one.

    Partitions are dealt to members in turn. The turn continues from topic to topic, and skips members that do
    not subscribe to the topic: with different subscriptions the plan may be uneven.
    """

    name = "roundrobin"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """Return a plan, as ``Assignor.assign`` specifies."""
        rows: dict[str, list[TopicPartition]] = {member: [] for member in members}
        places = {member: place for place, member in enumerate(in_order(members))}
        turn = 0  # the next place
        for topic, interested in subscribers(members, partition_counts).items():
            first = bisect_left(interested, turn, key=places.__getitem__)
            for number in range(partition_counts[topic]):
                member = interested[(first + number) % len(interested)]
                rows[member].append(TopicPartition(topic, number))
                turn = places[member] + 1
        return {member: frozenset(row) for member, row in rows.items()}


_ALL: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
ASSIGNORS: Final[Mapping[str, Assignor]] = {each.name: each for each in _ALL}


def assignor(name: str) -> Assignor:
    """The assignor with this name. Raises ``ValueError``, which lists the known names."""
    found = ASSIGNORS.get(name)
    if found is None:
        raise ValueError(f"there is no assignor {name!r}; choose {', '.join(map(repr, ASSIGNORS))}")
    return found
