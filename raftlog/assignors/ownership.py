"""The owner of each partition at the beginning of a rebalance, according to the claims of the members."""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.assignors.values import Subscription
from raftlog.types import TopicPartition


def owners(members: Mapping[str, Subscription]) -> dict[TopicPartition, str | None]:
    """The owner of each partition that at least one member claims.

    Of several claims, a claim of the highest generation counts: members with a lower generation have missed a
    rebalance. If several members claim a partition for one generation, at most one of them can be right, but
    it is unknown which: the partition has no owner (``None``).
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
