"""The records of the topic ``__offsets``: the contract with its readers.

Their encoding is that of all internal topics (``raftlog.hosting.keyed_records``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from queues.records import Job, JobKey, Queue, QueueKey
from raftlog.hosting.keyed_records import KeyedRecords

TOPIC: Final = "__offsets"

Partitions = Mapping[str, tuple[int, ...]]
"""Partitions by topic, in order."""


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag="offset"):
    """The committed offset of one group in one partition."""

    group: str
    topic: str
    partition: int


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    """The members of one group."""

    group: str


class TransactionKey(msgspec.Struct, frozen=True, array_like=True, tag="transaction"):
    """The offsets that the transactions of one producer commit for one group."""

    group: str
    producer_id: int


Key = OffsetKey | GroupKey | TransactionKey | QueueKey | JobKey


class CommittedOffset(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """``offset`` is the next one to read. ``topic_id`` tells a topic from an earlier one of the same name."""

    offset: int
    topic_id: str
    leader_epoch: int = -1  # of the last record that was consumed
    metadata: str = ""  # of the consumer
    committed_ms: int = 0
    generation: int = -1  # in which a member committed it
    member_id: str = ""


class TransactionOffsets(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Offsets that wait for the end of a transaction.

    Of older versions without offsets: ``epoch`` is the lowest that may add offsets.
    """

    epoch: int
    transaction: str = ""  # its name for people
    offsets: tuple[tuple[str, int, CommittedOffset], ...] = ()  # by topic and partition, in order
    changed_ms: int = 0


class Member(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One member. ``assignment`` is empty until the generation has a plan."""

    topics: tuple[str, ...]
    strategies: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes = b""  # JSON, of the member
    instance_id: str = ""  # of a static member
    client: str = ""  # its address
    assignment: dict[str, tuple[int, ...]] = {}
    owned: dict[str, tuple[int, ...]] = {}  # at the end of the generation before
    owned_generation: int = -1
    tags: tuple[str, ...] = ()  # these three lists are the same for all members
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Rebalance(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry of the journal of rebalances."""

    generation: int
    reason: str
    began_ms: int
    duration_ms: int
    members_before: int
    members_after: int


class Group(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The members of a generation, and the plan of its leader once ``has_plan``."""

    generation: int = 0
    leader: str = ""
    strategy: str = ""
    members: dict[str, Member] = {}
    has_plan: bool = False
    partition_counts: dict[str, int] = {}  # of the topics, when the generation began
    topic_ids: dict[str, str] = {}  # of these topics; older versions did not write them
    former_counts: dict[str, int] = {}  # of topics that no member subscribes to any more
    rebalance_due: str = ""  # why this generation must end
    changed_ms: int = 0
    client: str = ""  # the address of its creator; older versions did not write it
    rebalances: tuple[Rebalance, ...] = ()  # the newest last


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
    """Partitions by topic, each in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in targets:
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in sorted(found.items())}
