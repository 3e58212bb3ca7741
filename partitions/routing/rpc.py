"""The bodies of calls between brokers about partitions and their replicas. Nothing is decided here.

A body is a struct or a value of ``partitions.values`` in msgpack; batches are the raw payload behind it. Each
request names the partition and its Raft group: the group tells a topic from an earlier one of the same name.
Brokers are authenticated, but may run another version: ``decode_body`` raises ``InvalidRequest`` for bytes
that do not fit. ``partition_calls`` declares the services that the leader of one partition answers.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct, msgpack

from partitions.values import UNSTABLE, FetchRequest, FetchResult, Position
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.records.control import Archived, Marker
from raftlog.types import EntryId, GroupId, Index, NodeId, Offset, Term, TopicPartition


class _Waits(Struct, frozen=True):
    wait_ms: int = 0


class _FetchWaits(Struct, frozen=True, array_like=True):
    """The fields of a ``Fetch`` that say whether the call may wait."""

    place: Raw
    request: _Waits


def _class_of_fetch(head: bytes) -> CallClass:
    may_wait = msgpack.decode(head, type=_FetchWaits).request.wait_ms > 0
    return CallClass.LONG_POLL if may_wait else CallClass.FETCH


APPEND: Final = Service("partition.append", CallClass.PRODUCE)
FETCH: Final = Service("partition.fetch", CallClass.FETCH, _class_of_fetch)
DESCRIBE: Final = Service("partition.describe", CallClass.READ)
TRANSFER: Final = Service("partition.transfer", CallClass.REPLICAS)
PREPARED: Final = Service("partition.prepared", CallClass.REPLICAS)
METADATA_PREPARED: Final = Service("metadata.prepared", CallClass.REPLICAS)
MAY_DELETE: Final = Service("partition.may_delete", CallClass.REPLICAS)
LOG_END: Final = Service("partition.log_end", CallClass.REPLICAS)

Place = tuple[TopicPartition, GroupId]


class Append(Struct, frozen=True, array_like=True):
    """Append the payload's batches; answered with an ``AppendReceipt``."""

    place: Place
    acks: str
    timeout_ms: int
    transactional_id: str | None = None
    client: str = ""  # its address; none for what brokers write themselves


class Mark(Struct, frozen=True, array_like=True):
    """End a transaction in this partition; answered once its marker is committed."""

    place: Place
    marker: Marker
    timeout_ms: int


class DeleteBefore(Struct, frozen=True, array_like=True):
    """Delete the records below an offset; answered with the log start once that is committed."""

    place: Place
    offset: Offset
    timeout_ms: int


class SetArchived(Struct, frozen=True, array_like=True):
    """Set the archived offset; answered with the one that counts once that is committed."""

    place: Place
    archived: Archived
    timeout_ms: int


class Fetch(Struct, frozen=True, array_like=True):
    """Read; answered with a ``Fetched`` and batches as the payload."""

    place: Place
    request: FetchRequest


class Fetched(Struct, frozen=True, array_like=True):
    """A ``FetchResult`` without its data."""

    offset: Offset
    next_offset: Offset
    log_start_offset: Offset
    high_watermark: Offset
    leader_epoch: Term
    last_stable_offset: Offset = UNSTABLE
    end: Offset = UNSTABLE
    served_by: NodeId | None = None

    @classmethod
    def of(cls, result: FetchResult) -> Fetched:
        """All but the data."""
        return cls(
            result.offset,
            result.next_offset,
            result.log_start_offset,
            result.high_watermark,
            result.leader_epoch,
            result.last_stable_offset,
            result.end,
            result.served_by,
        )

    def with_data(self, data: memoryview) -> FetchResult:
        """The answer of the replica."""
        return FetchResult(
            offset=self.offset,
            data=data,
            next_offset=self.next_offset,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            leader_epoch=self.leader_epoch,
            last_stable_offset=self.last_stable_offset,
            end=self.end,
            served_by=self.served_by,
        )


class OffsetAt(Struct, frozen=True, array_like=True):
    """Find the offset of a position; answered with it and its record's timestamp."""

    place: Place
    position: Position
    committed_only: bool = False  # from a broker of an earlier version


class ReadIndex(Struct, frozen=True, array_like=True):
    """Ask for the commit index. The leader proves that it leads; answered with an ``Index``."""

    place: Place


class Describe(Struct, frozen=True, array_like=True):
    """Describe these replicas of one topic; answered with a ``PartitionStatus`` each."""

    places: tuple[Place, ...]


class Transfer(Struct, frozen=True, array_like=True):
    """Transfer the leadership, to the best replica where ``to`` is None; answered with leader and term.

    With ``term`` only the leader of that term transfers: one of a later term answers that it leads.
    """

    place: Place
    to: NodeId | None
    timeout_ms: int
    term: Term | None = None


class Prepared(Struct, frozen=True, array_like=True):
    """Is the replica open, by metadata of this version at least? Answered with a ``PreparedAnswer``.

    ``is_added``: the leader is about to add it, since it is no member of the group.
    """

    place: Place
    version: int
    is_added: bool = False


class PreparedAnswer(Struct, frozen=True, array_like=True):
    """A replica that rejoins is open, and counts towards no quorum yet."""

    is_open: bool
    is_rejoining: bool
    reason: str = ""  # why it is not open, as far as that is known


class MayDelete(Struct, frozen=True, array_like=True):
    """May the asker delete its replica, by metadata of this version? Answered with a ``DeleteAnswer``.

    ``is_added_again``: it will begin again, empty, before it is added.
    """

    place: Place
    version: int
    is_added_again: bool = False


class DeleteAnswer(Struct, frozen=True, array_like=True):
    """The leader's answer."""

    is_permitted: bool


class LogEndOf(Struct, frozen=True, array_like=True):
    """Ask for the end of a replica's log. Answered with a ``LogEnd``."""

    place: Place


class LogEnd(Struct, frozen=True, array_like=True, kw_only=True):
    """The end of one replica's log, and the voters that it names."""

    last: EntryId
    commit_index: Index
    halves: tuple[frozenset[NodeId], ...]  # a majority of each must agree
