"""The records of the topic ``__offsets``: the contract with its readers.

Keys and values are msgpack: a key is an array that begins with its kind, a value is a map. A record says what
holds from now on, never how it came to be, so the newest record of each key is the whole state and the topic
can be compacted. A record without a value deletes its key. Fields are added with defaults, and never renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from raftlog.records.builder import Record

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


Key = OffsetKey | GroupKey


class CommittedOffset(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """``offset`` is the next one to read. ``topic_id`` tells a topic from an earlier one of the same name."""

    offset: int
    topic_id: str
    leader_epoch: int = -1  # of the last record that was consumed
    metadata: str = ""  # of the consumer
    committed_ms: int = 0
    generation: int = -1  # in which a member committed it
    member_id: str = ""


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
    rebalance_due: str = ""  # why this generation must end
    changed_ms: int = 0
    rebalances: tuple[Rebalance, ...] = ()  # the newest last


Value = CommittedOffset | Group

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_KEYS: Final = msgspec.msgpack.Decoder(Key)
_OFFSETS: Final = msgspec.msgpack.Decoder(CommittedOffset)
_GROUPS: Final = msgspec.msgpack.Decoder(Group)


def record_of(key: Key, value: Value | None) -> Record:
    """The record that gives a key its value, or deletes it."""
    return Record(key=_ENCODER.encode(key), value=None if value is None else _ENCODER.encode(value))


def decoded(key: bytes | None, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Key and value of a record; None for a kind of record that this version does not know.

    Raises ``ValueError`` for a value that does not fit its key.
    """
    try:
        known = _KEYS.decode(key or b"")
    except ValueError:
        return None
    if value is None:
        return known, None
    return known, (_OFFSETS if isinstance(known, OffsetKey) else _GROUPS).decode(value)


def by_topic(targets: Iterator[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Partitions by topic, each in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in targets:
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in sorted(found.items())}
