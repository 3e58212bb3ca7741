"""The owner of each partition when a rebalance begins, from what the members say."""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.assignors.values import Subscription
from raftlog.types import TopicPartition


def owners(members: Mapping[str, Subscription]) -> dict[TopicPartition, str | None]:
    """The owner of each partition that at least one member claims.

    Of several claims the one of the highest generation counts: the other members have missed a rebalance.
    Where several members claim a partition for the same generation, at most one can be right, and nobody
    knows which: the partition has no owner (``None``).
    """
    generations: dict[TopicPartition, int] = {}
    found: dict[TopicPartition, str | None] = {}
    for member, subscription in members.items():
        generation = subscription.owned_generation
        for partition in subscription.owned:
            known = generations.get(partition)
            if known is None or generation > known:
                generations[partition] = generation
                found[partition] = member
            elif generation == known:
                found[partition] = None
    return found
