"""Subscriptions, plans, and the interface of an assignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from raftlog.types import TopicPartition

Plan: TypeAlias = Mapping[str, frozenset[TopicPartition]]
"""The partitions of each member, by member id. Every member has a row, which may be empty."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics to which a group member subscribes, and the partitions that it owns, at a rebalance."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()  # in the last generation that the member knows
    owned_generation: int = -1  # the generation of ``owned``; -1 before the first one
    instance_id: str = ""  # of a static member, whose member id changes with each restart


class Assignor(Protocol):
    """A rule that gives each partition to one member. Users may write their own.

    Equal arguments give equal plans, whatever the order of the mappings.
    """

    name: str
    """``range``, ``roundrobin``, ``sticky``, ``cooperative-sticky``, or a name chosen by the user."""

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """Return a plan for these members. Topics without a partition count do not exist and get no row."""
        ...


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """The member ids in Kafka's order: static members by instance id, then the other members by member id.

    A static member keeps its place when it restarts with another member id.
    """

    def place(member: str) -> tuple[bool, str, str]:
        instance_id = members[member].instance_id
        return (not instance_id, instance_id or member, member)

    return sorted(members, key=place)


def subscribers(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """The members of each topic that exists and has subscribers; topics and members are in order."""
    found: dict[str, list[str]] = {}
    for member in in_order(members):
        for topic in members[member].topics:
            if topic in partition_counts:
                found.setdefault(topic, []).append(member)
    return {topic: tuple(found[topic]) for topic in sorted(found)}
