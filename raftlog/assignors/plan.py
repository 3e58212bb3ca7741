"""Checks of a plan that was made elsewhere: by another client, or by an assignor that a user has written."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from raftlog.assignors.values import Subscription, subscribers
from raftlog.types import TopicPartition


def problem_of(
    plan: Mapping[str, Collection[TopicPartition]],
    members: Mapping[str, Subscription],
    partition_counts: Mapping[str, int],
    *,
    may_withhold: bool = False,
) -> str | None:
    """The problem of a plan, with the remedy; ``None`` for a plan that can be used.

    A member without a row gets no partitions. With ``may_withhold``, as in cooperative rebalances, partitions
    may be left to the next generation; otherwise each partition of a subscribed topic needs a member. Of
    several problems the first one is returned, in the order of member ids and partitions.
    """
    given: dict[TopicPartition, str] = {}
    for member in sorted(plan):
        if member not in members:
            return (
                f"the plan has a row for member {member!r}, which is not in the group; "
                "plan for the members of this generation only"
            )
        for partition in sorted(plan[member]):
            if problem := _problem_of_one(member, members[member], partition, partition_counts):
                return problem
            if partition in given:
                to_whom = f"to members {given[partition]!r} and {member!r}"
                if given[partition] == member:
                    to_whom = f"to member {member!r} twice"
                return f"the plan gives {partition} {to_whom}; give each partition to one member, once"
            given[partition] = member
    return None if may_withhold else _forgotten(given, members, partition_counts)


def _problem_of_one(
    member: str, subscription: Subscription, partition: TopicPartition, partition_counts: Mapping[str, int]
) -> str | None:
    topic, number = partition.topic, partition.partition
    count = partition_counts.get(topic, 0)
    start = f"the plan gives {partition} to member {member!r}, but"
    if topic not in subscription.topics:
        return f"{start} it does not subscribe topic {topic!r}; give it to a member that does"
    if topic not in partition_counts:
        return f"{start} there is no topic {topic!r}; read the topics again and plan without it"
    if not 0 <= number < count:
        has = f"has the partitions 0 to {count - 1}" if count else "has no partitions"
        return f"{start} topic {topic!r} {has}; read the partition counts again and plan for these"
    return None


def _forgotten(
    given: Mapping[TopicPartition, str],
    members: Mapping[str, Subscription],
    partition_counts: Mapping[str, int],
) -> str | None:
    for topic, interested in subscribers(members, partition_counts).items():
        for number in range(partition_counts[topic]):
            if (partition := TopicPartition(topic, number)) not in given:
                return (
                    f"the plan gives {partition} to no member; "
                    f"give it to a subscriber of topic {topic!r}, such as member {interested[0]!r}"
                )
    return None
