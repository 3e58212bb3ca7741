"""Decides whether records are lost if a partition begins after an offset, or is removed.

Deleted offsets without records, such as the ends of transactions and the seal of a decommissioned partition,
are no loss. A removed partition that was read to its end is no loss either. Leaves to others: the consequence
of a loss (``discovery``, ``reading``, ``stream_progress``).

For each partition, even a removed one, brokers know the offset after the newest record that it ever had. A
later partition with the same number continues the offsets of the removed one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftlog.errors import NoLeader, TopicNotFound
from raftlog.types import TopicPartition

if TYPE_CHECKING:
    from raftlog.client import Client


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a partition that readers can get, ``end`` excluded.

    ``records_end`` is one past the newest record that the partition has had, -1 if it is unknown.
    """

    start: int
    end: int
    record_bytes: float
    records_end: int = -1


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed partition. A later partition with its number begins at ``next_offset``."""

    records_end: int
    next_offset: int


def is_over(at: int, found: Bounds | None, removed: Removed | None) -> bool:
    """Whether the partition that was read up to ``at`` is removed, and had no record at or after ``at``.

    ``found`` is the present partition with the number of the removed partition, None without such a
    partition.
    """
    return removed is not None and removed.records_end <= at and (found is None or at < removed.next_offset)


def is_lossless(at: int, found: Bounds | None, removed: Removed | None = None) -> bool:
    """Whether no record at or after ``at`` is deleted."""
    if found is not None and (at >= found.start or 0 <= found.records_end <= at):
        return True
    return is_over(at, found, removed)


def removed_partitions(
    client: Client, targets: Iterable[TopicPartition], absent: Collection[TopicPartition]
) -> dict[TopicPartition, Removed]:
    """The last removed partition for each element of ``targets`` and ``absent``.

    Sends one request for each topic. ``absent`` are partitions that brokers did not list. Raises ``NoLeader``
    if the broker that answers now lists one of these: its metadata has another version.
    """
    wanted, found = {*targets, *absent}, {}
    for topic in sorted({one.topic for one in wanted}):
        try:
            described = client.topics.describe(topic)
        except TopicNotFound:
            continue
        for target in absent:
            if target.topic == topic and target.partition < described.partitions:
                raise NoLeader(f"{target} is being removed or added", topic=topic, partition=target.partition)
        for one in described.removed:
            target = TopicPartition(topic, one.partition)
            if target in wanted:
                found[target] = Removed(one.records_end, one.next_offset)
    return found


def is_lossless_now(client: Client, target: TopicPartition, at: int) -> bool:
    """``is_lossless`` for a partition as brokers describe it now. Raises ``NoLeader``."""
    try:
        partitions = client.topics.partitions(target.topic)
    except TopicNotFound:
        return False
    found = None
    for one in partitions:
        if one.partition == target.partition:
            found = Bounds(one.log_start_offset, one.high_watermark, 0.0, one.records_end)
    absent = [target] if found is None else []
    return is_lossless(at, found, removed_partitions(client, [target], absent).get(target))
