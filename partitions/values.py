"""Arguments and results of the partition service. Nothing is decided here.

They travel between brokers as they are (``routing.rpc``): a field that is added has a default.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from raftlog.acks import acks_word
from raftlog.errors import InvalidRequest
from raftlog.records.tags import TagSelection
from raftlog.types import GroupId, NodeId, Offset, Term, TopicPartition


class AcksKind(enum.Enum):
    """When a produce is answered."""

    NONE = "0"  # nothing is awaited
    LEADER = "1"  # the leader has fsynced it; it may vanish
    QUORUM = "quorum"  # fsynced on a majority and committed
    EVERY = "every"  # committed, and fsynced on every in-sync replica
    COUNT = "count"  # committed, and fsynced on that many replicas


_ACKS = {kind.value: kind for kind in AcksKind if kind is not AcksKind.COUNT}


class Acks(Struct, frozen=True):
    """``acks=0 | 1 | quorum | every | K``; ``count`` matters to ``COUNT`` only."""

    kind: AcksKind
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> Acks:
        """From a query parameter or an option. Raises ``InvalidRequest`` naming the choices."""
        word = acks_word(text)
        if word is None:
            raise InvalidRequest(
                f"acks is {text!r}; send 0, 1, quorum, every or a number of replicas", field="acks"
            )
        if word in _ACKS:
            return cls(_ACKS[word])
        return cls(AcksKind.COUNT, int(word))

    def __str__(self) -> str:
        return str(self.count) if self.kind is AcksKind.COUNT else self.kind._value_  # without a call


QUORUM = Acks(AcksKind.QUORUM)


class Durability(Struct, frozen=True, kw_only=True):
    """The durability that an acknowledgement confirms."""

    acks: str
    committed: bool
    fsynced: bool
    replicas: int  # voters known to have fsynced it when it was answered


class AppendReceipt(Struct, frozen=True, kw_only=True):
    """The offsets and the durability of the records of one append."""

    base_offset: Offset
    record_count: int
    leader_epoch: Term
    timestamp_ms: int | None  # the append time, or None where the topic keeps the producer's times
    was_duplicate: bool  # the producer had sent this before; nothing was added
    durability: Durability


class Start(enum.Enum):
    """Positions in a partition that the leader resolves when it serves the read."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtTime(Struct, frozen=True, array_like=True, tag="time"):
    """The first record whose timestamp is at or after this."""

    timestamp_ms: int


class LastRecords(Struct, frozen=True, array_like=True, tag="last"):
    """The newest ``count`` records that the reader sees, or all from the log start when there are fewer."""

    count: int


Position = Offset | Start | AtTime | LastRecords
"""Where a read begins. ``Offset`` is a plain ``int`` at run time."""


class FetchRequest(Struct, frozen=True, kw_only=True):
    """One read. ``wait_ms`` > 0 parks until ``bytes_min`` are there (long poll).

    With ``tags`` (any of), ``tags_all`` and ``tags_none`` only what they select counts and is returned: parts
    of batches, and whole batches whose tags are not listed. The reader looks at the records again: a leader
    of an earlier version returns more.
    """

    position: Position
    bytes_max: int = 1 << 20
    bytes_min: int = 1
    wait_ms: int = 0
    committed_only: bool = True  # nothing of transactions that are open or aborted
    tags: tuple[str, ...] = ()
    max_staleness_ms: int = (
        0  # any replica may serve that knows all that was committed so long ago; 0: the leader
    )
    min_offset: Offset = Offset(0)  # the replica knows all records below, such as the reader's own writes
    rack: str | None = None  # of the reader, with ``max_staleness_ms``; None: that of the broker asked
    is_local: bool = False  # with ``max_staleness_ms``: only the broker asked may serve
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()
    in_pieces: bool = False  # the caller can take the rest of a large result piece by piece

    @property
    def selection(self) -> TagSelection | None:
        """The tags of the records to return; None for all records."""
        return TagSelection.in_fields(self)


UNSTABLE: Final = Offset(-1)  # the last stable offset from a broker of an earlier version
NOTHING_ARCHIVED: Final = Offset(0)
NO_RECORD: Final = Offset(-1)  # the end of the records where none is known


class UnreadBatches(Protocol):
    """Whole batches that are read and checked when they are asked for, one piece at a time."""

    @property
    def left_bytes(self) -> int:
        """Bytes that no piece has had yet."""

    def next(self) -> memoryview:
        """The next piece, which replaces the previous piece; for a thread. Raises ``READ_FAILURES``."""

    def failed(self, error: Exception) -> None:
        """Tell the replica why there was no piece."""


class FetchResult(Struct, frozen=True, kw_only=True):
    """Whole batches, committed. The first may begin before ``offset``, which the reader skips.

    A reader of committed records gets gap batches in place of aborted ones, a reader of tags nothing in place
    of what does not match.
    """

    offset: Offset  # where the read began, once its position was found
    data: bytes | memoryview  # batches back to back; empty when there is nothing
    next_offset: Offset  # where to continue: one past the last record looked at, or ``offset``
    log_start_offset: Offset
    high_watermark: Offset
    leader_epoch: Term
    last_stable_offset: Offset = UNSTABLE  # below it each transaction has ended
    end: Offset = UNSTABLE  # of what this reader may see: that, or the high watermark
    served_by: NodeId | None = None  # the broker whose replica was read; None: of an earlier version
    is_archived: bool = False  # the records are below the log start, and come from an archive
    rest: UnreadBatches | None = None  # the batches behind ``data``, of a request ``in_pieces``

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return len(self.data) + (0 if self.rest is None else self.rest.left_bytes)


class Consumed(NamedTuple):
    """The offset up to which, excluded, these groups have all consumed a partition, and the slowest group."""

    offset: Offset
    group: str
    groups: tuple[str, ...]


def consumed_by(groups: tuple[str, ...], known: Consumed | None) -> Consumed | None:
    """The position of these groups: 0 while only that of other groups is known; None without groups."""
    if not groups:
        return None
    return known if known is not None and known.groups == groups else Consumed(Offset(0), groups[0], groups)


NOTHING_CONSUMED: Final[Mapping[GroupId, Consumed]] = MappingProxyType({})


class PartitionStatus(Struct, frozen=True, kw_only=True):
    """One partition as its leader (or, without one, any broker) describes it."""

    partition: int
    leader: NodeId | None
    term: Term
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    commit_index: int
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    size_bytes: int
    learners: tuple[NodeId, ...] = ()  # they get everything and do not vote yet
    caught_up_percent: int | None = None  # the slowest of them, as the leader knows
    rejoining: tuple[NodeId, ...] = ()  # voters that lost files: they count towards no quorum yet
    awaited: tuple[NodeId, ...] = ()  # voters that must be heard before those count, or before anyone leads
    offline: tuple[tuple[NodeId, str], ...] = ()  # replicas that take no part and why; empty with a leader
    last_stable_offset: Offset = UNSTABLE  # below it each transaction has ended
    readers_held_ms: int = 0  # for how long the oldest open transaction has held back readers
    archived_up_to: Offset = NOTHING_ARCHIVED  # records below are in an archive
    is_sealed: bool = False  # decommissioned, and each later leader refuses records
    awaiting_archive_bytes: int = 0  # what retention keeps here only until it is archived
    consumed_up_to: Offset = NO_RECORD  # by all groups that the topic names, -1 where it names none
    held_back_by: str = ""  # the slowest of these groups
    records_end: Offset = NO_RECORD  # one past the newest record that there ever was, as far as is known

    @classmethod
    def unknown(cls, partition: int, replicas: tuple[NodeId, ...] = ()) -> PartitionStatus:
        """The status of a partition of which no replica has answered yet; older than any answer."""
        return cls(
            partition=partition,
            leader=None,
            term=Term(-1),
            replicas=replicas,
            in_sync=(),
            commit_index=-1,
            log_start_offset=Offset(0),
            high_watermark=Offset(0),
            log_end_offset=Offset(0),
            size_bytes=0,
        )


TopicConfig = Mapping[str, int | str]
"""Kafka's names to values, complete with defaults; ``topic_config`` checks them."""


def key_of(target: TopicPartition) -> tuple[str, int]:
    """A plain tuple, as a key."""
    return (target.topic, target.partition)
