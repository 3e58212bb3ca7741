"""Subscriptions and plans of consumer groups, written as text: ``t0/1 t1/0`` are two partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from raftlog.assignors import Plan, Subscription
from raftlog.types import TopicPartition


def partitions(text: str) -> frozenset[TopicPartition]:
    """``t0/1 t1/0``."""
    parts = (word.split("/") for word in text.split())
    return frozenset(TopicPartition(topic, int(number)) for topic, number in parts)


def subscribed(topics: str, owned: str = "", generation: int = -1, instance_id: str = "") -> Subscription:
    """A subscription of topics that are separated by spaces."""
    return Subscription(frozenset(topics.split()), partitions(owned), generation, instance_id)


def text(row: Iterable[TopicPartition]) -> str:
    """The partitions in order."""
    return " ".join(map(str, sorted(row)))


def texts(plan: Plan) -> dict[str, str]:
    """The rows of a plan, in the order of member ids."""
    return {member: text(plan[member]) for member in sorted(plan)}


def rejoined(members: Mapping[str, Subscription], plan: Plan, generation: int = 1) -> dict[str, Subscription]:
    """The same members when they own what a plan has given to them."""
    return {
        member: replace(subscription, owned=plan[member], owned_generation=generation)
        for member, subscription in members.items()
    }
