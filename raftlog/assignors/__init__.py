"""Temporary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from raftlog.types import TopicPartition

COOPERATIVE_STICKY: Final = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    owned_generation: int = -1
    instance_id: str = ""


Plan = Mapping[str, frozenset[TopicPartition]]


class Assignor(Protocol):
    @property
    def name(self) -> str: ...
    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan: ...


class _Range:
    name = "range"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        plan: dict[str, set[TopicPartition]] = {m: set() for m in members}
        for topic, count in sorted(partition_counts.items()):
            order = sorted(m for m, s in members.items() if topic in s.topics)
            for n in range(count if order else 0):
                each, extra = divmod(count, len(order))
                cut = extra * (each + 1)
                i = n // (each + 1) if n < cut else extra + (n - cut) // each
                plan[order[i]].add(TopicPartition(topic, n))
        return {m: frozenset(p) for m, p in plan.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": _Range()}


def problem_of(
    plan: Mapping[str, Collection[TopicPartition]],
    members: Mapping[str, Subscription],
    partition_counts: Mapping[str, int],
    *,
    may_withhold: bool = False,
) -> str | None:
    seen: dict[TopicPartition, str] = {}
    for member, targets in plan.items():
        if member not in members:
            return f"{member!r} is no member"
        for t in targets:
            if t in seen:
                return f"{t} is given to {seen[t]!r} and {member!r}"
            seen[t] = member
            if t.topic not in members[member].topics or t.partition >= partition_counts.get(t.topic, 0):
                return f"{t} does not exist or is not subscribed by {member!r}"
    if not may_withhold:
        for topic in {t for s in members.values() for t in s.topics}:
            for n in range(partition_counts.get(topic, 0)):
                if TopicPartition(topic, n) not in seen:
                    return f"{topic}/{n} is given to nobody"
    return None
