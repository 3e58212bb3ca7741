"""Arguments and results of the partition service; this module decides nothing.

Brokers send these values to each other unchanged (``routing.rpc``), so a new field needs a default.
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
    """The condition for the answer to a produce request."""

    NONE = "0"  # at once
    LEADER = "1"  # the leader has fsynced the records; a change of leader may still lose them
    QUORUM = "quorum"  # committed, and fsynced on a majority
    EVERY = "every"  # committed, and fsynced on every in-sync replica
    COUNT = "count"  # committed, and fsynced on ``count`` replicas


_ACKS = {kind.value: kind for kind in AcksKind if kind is not AcksKind.COUNT}


class Acks(Struct, frozen=True):
    """Acknowledgement that a producer asks for: ``acks=0 | 1 | quorum | every | K``.

    ``count`` is used only with ``COUNT``.
    """

    kind: AcksKind
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> Acks:
        """Parse the text of ``acks`` in a query or an option.

        Raises ``InvalidRequest``, which lists the choices.
        """
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
    replicas: int  # voters known to have fsynced the records when the leader answered


class AppendReceipt(Struct, frozen=True, kw_only=True):
    """The offsets and the durability of the records of one append."""

    base_offset: Offset
    record_count: int
    leader_epoch: Term
    timestamp_ms: int | None  # the append time, or None where the topic keeps the producer's times
    was_duplicate: bool  # the producer had sent these records before; the leader appended nothing
    durability: Durability


class Start(enum.Enum):
    """Positions in a partition whose offset the leader determines when it serves the read."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtTime(Struct, frozen=True, array_like=True, tag="time"):
    """Position of the first record whose timestamp is at or after ``timestamp_ms``."""

    timestamp_ms: int


class LastRecords(Struct, frozen=True, array_like=True, tag="last"):
    """Position of the newest ``count`` records that the reader sees; the log start if there are fewer."""

    count: int


Position = Offset | Start | AtTime | LastRecords
"""Position at which a read begins. ``Offset`` is a plain ``int`` at run time."""


class FetchRequest(Struct, frozen=True, kw_only=True):
    """One read. With ``wait_ms`` > 0 the replica waits until ``bytes_min`` bytes are available (long poll).

    With ``tags`` (any of), ``tags_all`` and ``tags_none`` the replica counts and returns only parts of
    batches with matching records, and whole batches whose tags are not listed. The reader must filter the
    records again: a leader of an earlier release returns more records.
    """

    position: Position
    bytes_max: int = 1 << 20
    bytes_min: int = 1
    wait_ms: int = 0
    committed_only: bool = True  # no records of open or aborted transactions
    tags: tuple[str, ...] = ()
    max_staleness_ms: int = (
        0  # any replica may serve that has all records committed before that time; 0: only the leader
    )
    min_offset: Offset = Offset(0)  # the serving replica has all records below, such as the reader's writes
    rack: str | None = None  # the reader's, with ``max_staleness_ms``; None: the rack of the broker asked
    is_local: bool = False  # with ``max_staleness_ms``: only the broker asked may serve the read
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()
    in_pieces: bool = False  # the caller can read the rest of a large result piece by piece

    @property
    def selection(self) -> TagSelection | None:
        """The tags of the records to return; None for all records."""
        return TagSelection.in_fields(self)


UNSTABLE: Final = Offset(-1)  # the last stable offset from a broker of an earlier version
NOTHING_ARCHIVED: Final = Offset(0)
NO_RECORD: Final = Offset(-1)  # the end of the records where none is known


class UnreadBatches(Protocol):
    """Rest of a large fetch result. Each call of ``next`` reads and checks some whole batches."""

    @property
    def left_bytes(self) -> int:
        """Number of bytes that ``next`` has not returned yet."""

    def next(self) -> memoryview:
        """Read the next batches, into the memory of the previous batches. Call the method in a thread.

        Raises ``READ_FAILURES``.
        """

    def failed(self, error: Exception) -> None:
        """Report to the replica the error that ``next`` raised."""


class FetchResult(Struct, frozen=True, kw_only=True):
    """Whole committed batches. The first batch may begin below ``offset``; the reader skips records below it.

    A reader of committed records gets gap batches in place of aborted batches. A reader of tags gets no gap
    batches in place of records that do not match.
    """

    offset: Offset  # at which the read began, once its position was found
    data: bytes | memoryview  # batches back to back; empty when there are none
    next_offset: Offset  # at which to continue: one past the last record read, or ``offset``
    log_start_offset: Offset
    high_watermark: Offset
    leader_epoch: Term
    last_stable_offset: Offset = UNSTABLE  # all transactions below it have ended
    end: Offset = UNSTABLE  # end of the records this reader may see: last stable offset or high watermark
    served_by: NodeId | None = None  # the broker whose replica was read; None: a broker of an earlier version
    is_archived: bool = False  # the records are below the log start and come from an archive
    rest: UnreadBatches | None = None  # the batches after ``data``, for a request with ``in_pieces``

    @property
    def size_bytes(self) -> int:
        """Number of bytes of all batches, including batches that are not read yet."""
        return len(self.data) + (0 if self.rest is None else self.rest.left_bytes)


class Consumed(NamedTuple):
    """Lowest committed offset of some groups in a partition, and the group that committed it."""

    offset: Offset
    group: str
    groups: tuple[str, ...]


def consumed_by(groups: tuple[str, ...], known: Consumed | None) -> Consumed | None:
    """The lowest committed offset of ``groups``; None without groups, 0 if ``known`` is about others."""
    if not groups:
        return None
    return known if known is not None and known.groups == groups else Consumed(Offset(0), groups[0], groups)


NOTHING_CONSUMED: Final[Mapping[GroupId, Consumed]] = MappingProxyType({})


class PartitionStatus(Struct, frozen=True, kw_only=True):
    """The status of one partition, described by its leader or, without a leader, by any broker."""

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
    learners: tuple[NodeId, ...] = ()  # they receive all entries and do not vote yet
    caught_up_percent: int | None = None  # of the slowest learner, as far as the leader knows
    rejoining: tuple[NodeId, ...] = ()  # voters that lost files: they do not count in quorums yet
    awaited: tuple[
        NodeId, ...
    ] = ()  # voters that must answer before rejoining voters count, or before an election
    offline: tuple[tuple[NodeId, str], ...] = ()  # replicas that do not run, and why; empty with a leader
    last_stable_offset: Offset = UNSTABLE  # all transactions below it have ended
    readers_held_ms: int = 0  # how long the oldest open transaction has held back readers
    archived_up_to: Offset = NOTHING_ARCHIVED  # records below it are in an archive
    is_sealed: bool = False  # decommissioned, and each later leader refuses records
    awaiting_archive_bytes: int = 0  # bytes that retention keeps only until they are archived
    consumed_up_to: Offset = NO_RECORD  # by all groups that the topic names; -1 if it names none
    held_back_by: str = ""  # the slowest of these groups
    records_end: Offset = NO_RECORD  # one past the newest record that the partition ever had, if known

    @classmethod
    def unknown(cls, partition: int, replicas: tuple[NodeId, ...] = ()) -> PartitionStatus:
        """The status of a partition before any replica has answered; any answer replaces it."""
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
"""Settings of a topic, complete with defaults, under Kafka's names; ``topic_config`` checks the values."""


def key_of(target: TopicPartition) -> tuple[str, int]:
    """The partition as a plain tuple, for use as a key of a dict."""
    return (target.topic, target.partition)
