"""Computes one generation of a group: its members, its strategy, and the replies to members.

Pure functions of the group's written state; ``membership`` decides when a generation begins and ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from groups.records import Group, Member, by_topic
from groups.requests import Join, Joined, MemberInfo, Plan, Synced
from raftlog.assignors import ASSIGNORS, Subscription, problem_of
from raftlog.assignors.ownership import owners
from raftlog.hosting.budget import share_owner
from raftlog.records.tags import TagSelection
from raftlog.types import TopicPartition

COOPERATIVE: Final = "cooperative-sticky"
FORMER_TOPICS_MAX: Final = 1_000
SERVER_STRATEGY: Final = "range"  # for a server-made plan of a group with a custom strategy


def topics_of(group: Group) -> set[str]:
    """The topics to which the members of a group subscribe."""
    return {topic for member in group.members.values() for topic in member.topics}


def rebalance_timeout_ms(group: Group) -> int:
    """The longest rebalance timeout of the members, in milliseconds."""
    return max((member.rebalance_timeout_ms for member in group.members.values()), default=0)


def is_same(member: Member, ask: Join) -> bool:
    """Whether a join has a subscription equal to the member's current subscription."""
    subscriptions = [(each.topics, each.strategies, TagSelection.in_fields(each)) for each in (member, ask)]
    return subscriptions[0] == subscriptions[1]


def size_of(member: Member | Join, *, owned: Mapping[str, tuple[int, ...]] | None = None) -> int:
    """Maximum bytes of a member in its group's record, without the assignment.

    ``owned`` replaces the partitions that the member owned in the previous generation.
    """
    names = sum(len(name) + 5 for name in (*member.topics, *member.strategies))
    tags = (*member.tags, *member.tags_all, *member.tags_none)
    names += sum(len(tag.encode()) + 5 for tag in tags)
    targets = (member.owned if owned is None else owned) or {}
    owned_bytes = sum(len(topic) + 10 * len(numbers) for topic, numbers in targets.items())
    return len(member.metadata) + len(member.instance_id) + names + owned_bytes + 500


def withholds(group: Group) -> bool:
    """Whether a plan of ``cooperative-sticky`` assigns a previously owned partition to no member.

    The next generation assigns such a partition to another member, after its owner has revoked it and joined
    again. Custom strategies may leave partitions unassigned permanently.
    """
    if group.strategy != COOPERATIVE:
        return False
    given = {target for each in group.members.values() for target in _targets(each.assignment)}
    owned = {target for each in group.members.values() for target in _targets(each.owned)}
    return any(each.partition < group.partition_counts.get(each.topic, 0) for each in owned - given)


def is_another(group: Group, topic: str, topic_id: str) -> bool:
    """Whether the topic was deleted and created again since the generation began."""
    known = group.topic_ids.get(topic, topic_id)  # missing in rows of older versions
    return known != topic_id


def why_changed(group: Group, counts: Mapping[str, int], topic_ids: Mapping[str, str]) -> str:
    """The reason of a rebalance if a topic has changed since the generation began; else empty.

    ``counts`` are the partition counts of the topics that the members subscribe to.
    """
    before = group.partition_counts
    for topic in sorted(before.keys() | counts.keys()):
        if before.get(topic) != counts.get(topic):
            return f"the partitions of topic {topic} changed"
        if topic in topic_ids and is_another(group, topic, topic_ids[topic]):
            return f"topic {topic} was created again"
    return ""


def why_joined(member: Member | None, ask: Join) -> str:
    """The reason of a rebalance that begins because a member joins."""
    if member is None:
        return f"member {ask.member_id} joined"
    if not is_same(member, ask):
        return f"member {ask.member_id} changed its subscription"
    return f"member {ask.member_id} asked for a rebalance"


def strategies_in_common(offered: Sequence[Sequence[str]]) -> set[str]:
    """The assignment strategies that all members support."""
    return set(offered[0]).intersection(*offered) if offered else set()


def counts_of_all(group: Group) -> dict[str, int]:
    """Partition counts of the topics that the members subscribe to, or subscribed to before."""
    return {**group.former_counts, **group.partition_counts}


def former_counts(
    before: Group, counts: Mapping[str, int], existing: Mapping[str, int], consumed: Collection[str]
) -> dict[str, int]:
    """Partition counts of consumed topics to which no member of the next generation subscribes.

    The counts are kept so that a member that subscribes again reads partitions added since then from their
    start. At most ``FORMER_TOPICS_MAX`` topics are kept.
    """
    known = counts_of_all(before)
    left = sorted(known.keys() & existing.keys() & set(consumed) - counts.keys())
    return {topic: min(known[topic], existing[topic]) for topic in left[:FORMER_TOPICS_MAX]}


def next_generation(
    before: Group,
    joined: dict[str, Join],
    counts: dict[str, int],
    former: dict[str, int],
    topic_ids: Mapping[str, str],
    wall_ms: int,
) -> Group:
    """Make the next generation from the joined members; members of the previous generation come first.

    The new generation has no plan yet.
    """
    order = [member_id for member_id in before.members if member_id in joined]
    order += [member_id for member_id in joined if member_id not in before.members]
    members = {member_id: _member(before, member_id, joined[member_id]) for member_id in order}
    generation = before.generation + 1
    ids = {topic: topic_ids[topic] for topic in counts if topic in topic_ids}
    return Group(
        generation=generation,
        leader=order[generation % len(order)] if order else "",
        strategy=_voted(members.values()),
        members=members,
        partition_counts=counts if members else before.partition_counts,
        topic_ids=ids if members else before.topic_ids,
        former_counts=former if members else before.former_counts,
        changed_ms=wall_ms,
        client=before.client or (share_owner(members[order[0]].client) if order else ""),
        rebalances=before.rebalances,
    )


def _member(before: Group, member_id: str, ask: Join) -> Member:
    known = before.members.get(member_id)
    owned, owned_generation = ask.owned or {}, ask.generation
    if ask.owned is None and known is not None and ask.generation >= 0:  # a new process owns no partition
        owned = known.assignment if before.has_plan else known.owned
        owned_generation = before.generation if before.has_plan else known.owned_generation
    return Member(
        topics=ask.topics,
        strategies=ask.strategies,
        session_timeout_ms=ask.session_timeout_ms,
        rebalance_timeout_ms=ask.rebalance_timeout_ms,
        metadata=ask.metadata,
        instance_id=ask.instance_id,
        client=ask.client,
        owned=owned,
        owned_generation=owned_generation,
        tags=ask.tags,
        tags_all=ask.tags_all,
        tags_none=ask.tags_none,
    )


def _voted(members: Iterable[Member]) -> str:
    """The strategy that most members prefer among the strategies that all support; in a tie the first by
    name.
    """
    offered = [member.strategies for member in members]
    common = strategies_in_common(offered)
    votes = Counter(next(name for name in names if name in common) for names in offered)
    return min(votes, key=lambda name: (-votes[name], name), default="")


def server_plan(group: Group) -> Plan:
    """Make a plan by the group's strategy, or by ``SERVER_STRATEGY`` if the group's strategy is custom."""
    assignor = ASSIGNORS.get(group.strategy) or ASSIGNORS[SERVER_STRATEGY]
    plan = assignor.assign(_subscriptions(group), group.partition_counts)
    return {
        member_id: by_topic((target.topic, target.partition) for target in targets)
        for member_id, targets in plan.items()
    }


def problem_of_plan(group: Group, plan: Plan) -> str | None:
    """The error in a plan, or None. The rules of custom strategies are not checked."""
    given = {
        member_id: [TopicPartition(topic, number) for topic, numbers in targets.items() for number in numbers]
        for member_id, targets in plan.items()
    }
    members = _subscriptions(group)
    may_withhold = group.strategy not in ASSIGNORS or group.strategy == COOPERATIVE
    problem = problem_of(given, members, group.partition_counts, may_withhold=may_withhold)
    if problem is not None or group.strategy != COOPERATIVE:
        return problem
    owner_of = owners(members)
    for member_id, targets in given.items():
        for target in targets:
            if owner_of.get(target, member_id) != member_id:
                return (
                    f"the plan gives {target} to member {member_id!r}, but {owner_of[target]!r} may still "
                    "read it; withhold it until the next generation"
                )
    return None


def with_plan(group: Group, plan: Plan) -> dict[str, Member]:
    """The members with the partitions that the plan assigns to them."""
    return {
        member_id: msgspec.structs.replace(
            member,
            assignment=by_topic(
                (topic, number) for topic, numbers in plan.get(member_id, {}).items() for number in numbers
            ),
        )
        for member_id, member in group.members.items()
    }


def _targets(partitions: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers}


def _subscriptions(group: Group) -> dict[str, Subscription]:
    return {
        member_id: Subscription(
            topics=frozenset(member.topics),
            owned=frozenset(_targets(member.owned)),
            owned_generation=member.owned_generation,
            instance_id=member.instance_id,
        )
        for member_id, member in group.members.items()
    }


def joined(group: Group, member_id: str) -> Joined:
    """Make the reply to a member that has joined a generation."""
    is_leader = member_id == group.leader
    infos = tuple(
        MemberInfo(
            member_id=each,
            topics=member.topics,
            metadata=member.metadata,
            instance_id=member.instance_id,
            owned=member.owned,
            owned_generation=member.owned_generation,
        )
        for each, member in (group.members.items() if is_leader else ())
    )
    return Joined(
        member_id=member_id,
        generation=group.generation,
        leader=group.leader,
        strategy=group.strategy,
        members=infos,
        partition_counts=group.partition_counts if is_leader else {},
    )


def synced(group: Group, member_id: str) -> Synced:
    """Make the reply that has the partitions of a member."""
    member = group.members[member_id]
    return Synced(
        generation=group.generation,
        assignment=member.assignment,
        tags=member.tags,
        tags_all=member.tags_all,
        tags_none=member.tags_none,
    )
