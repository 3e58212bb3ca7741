"""Records of the topic ``__offsets``: the format that readers of the topic rely on.

All internal topics share the encoding (``raftlog.hosting.keyed_records``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from queues.records import Job, JobKey, Queue, QueueKey
from raftlog.hosting.keyed_records import KeyedRecords

TOPIC: Final = "__offsets"

Partitions = Mapping[str, tuple[int, ...]]
"""Sorted partitions by topic."""


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag="offset"):
    """Key of the record with the committed offset of one group in one partition."""

    group: str
    topic: str
    partition: int


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    """Key of the record with the members of one group."""

    group: str


class TransactionKey(msgspec.Struct, frozen=True, array_like=True, tag="transaction"):
    """Key of the record with the offsets that one producer's transaction commits for one group."""

    group: str
    producer_id: int


Key = OffsetKey | GroupKey | TransactionKey | QueueKey | JobKey


class CommittedOffset(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A committed offset: the next offset to read. ``topic_id`` distinguishes topics with an equal name."""

    offset: int
    topic_id: str
    leader_epoch: int = -1  # of the last consumed record
    metadata: str = ""  # of the consumer
    committed_ms: int = 0
    generation: int = -1  # of the member that committed the offset
    member_id: str = ""


class TransactionOffsets(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Offsets that wait for the end of a transaction.

    If a row of an earlier release has no offsets, ``epoch`` is the lowest producer epoch that may add
    offsets.
    """

    epoch: int
    transaction: str = ""  # readable name
    offsets: tuple[tuple[str, int, CommittedOffset], ...] = ()  # sorted by topic and partition
    changed_ms: int = 0


class Member(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One group member. ``assignment`` is empty until the generation has a plan."""

    topics: tuple[str, ...]
    strategies: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes = b""  # JSON, of the member
    instance_id: str = ""  # of a static member
    client: str = ""  # address of the client
    assignment: dict[str, tuple[int, ...]] = {}
    owned: dict[str, tuple[int, ...]] = {}  # at the end of the previous generation
    owned_generation: int = -1
    tags: tuple[str, ...] = ()  # all members have equal lists of tags
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Rebalance(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry of a group's journal of rebalances."""

    generation: int
    reason: str
    began_ms: int
    duration_ms: int
    members_before: int
    members_after: int


class Group(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The members of a generation, and the generation's plan once ``has_plan`` is True."""

    generation: int = 0
    leader: str = ""
    strategy: str = ""
    members: dict[str, Member] = {}
    has_plan: bool = False
    partition_counts: dict[str, int] = {}  # by topic, when the generation began
    topic_ids: dict[str, str] = {}  # by topic; missing in rows of older versions
    former_counts: dict[str, int] = {}  # partitions of topics that no member subscribes to any more
    rebalance_due: str = ""  # the reason why this generation must end
    changed_ms: int = 0
    client: str = ""  # address of the creator; missing in rows of older versions
    rebalances: tuple[Rebalance, ...] = ()  # newest last


Value = CommittedOffset | Group | TransactionOffsets | Queue | Job

KINDS: Final = KeyedRecords[Key, Value](
    {
        OffsetKey: CommittedOffset,
        GroupKey: Group,
        TransactionKey: TransactionOffsets,
        QueueKey: Queue,
        JobKey: Job,
    }
)


def by_topic(targets: Iterator[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Group partitions by topic; topics and partition numbers are sorted."""
    found: dict[str, list[int]] = {}
    for topic, partition in targets:
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in sorted(found.items())}
