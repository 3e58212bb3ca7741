"""Bodies of calls between brokers about partitions and their replicas.

A body is a struct or a value of ``partitions.values`` in msgpack; batches follow as raw payload. Each request
names the partition and its Raft group, which distinguishes a topic from an earlier topic with an equal name.
Brokers are authenticated, but may run another release: ``decode_body`` raises ``InvalidRequest`` for
undecodable bytes. ``partition_calls`` declares the services that the leader of one partition answers.
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
    """Append the batches in the payload; answered with an ``AppendReceipt``."""

    place: Place
    acks: str
    timeout_ms: int
    transactional_id: str | None = None
    client: str = ""  # the client's address; empty for records that brokers write themselves


class Mark(Struct, frozen=True, array_like=True):
    """End a transaction in this partition; answered once the transaction's marker is committed."""

    place: Place
    marker: Marker
    timeout_ms: int


class DeleteBefore(Struct, frozen=True, array_like=True):
    """Delete the records below an offset; answered with the log start once the deletion is committed."""

    place: Place
    offset: Offset
    timeout_ms: int


class SetArchived(Struct, frozen=True, array_like=True):
    """Set the archived offset; answered with the offset in force once the change is committed."""

    place: Place
    archived: Archived
    timeout_ms: int


class Fetch(Struct, frozen=True, array_like=True):
    """Read batches; answered with a ``Fetched`` and the batches as payload."""

    place: Place
    request: FetchRequest


class Fetched(Struct, frozen=True, array_like=True):
    """A ``FetchResult`` without its batches, which are the payload."""

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
        """Take all fields of a result except its data."""
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
        """Make a ``FetchResult`` from these fields and the payload of the answer."""
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
    """Find the offset of a position; answered with the offset and the timestamp of the record there."""

    place: Place
    position: Position
    committed_only: bool = False  # the default is for brokers of an earlier version


class ReadIndex(Struct, frozen=True, array_like=True):
    """Ask for the commit index; answered with an ``Index`` once a quorum has confirmed the leader."""

    place: Place


class Describe(Struct, frozen=True, array_like=True):
    """Describe replicas of one topic; answered with one ``PartitionStatus`` for each place."""

    places: tuple[Place, ...]


class Transfer(Struct, frozen=True, array_like=True):
    """Transfer the leadership to ``to`` (None: the best replica); answered with the new leader and its term.

    With ``term`` only the leader of that term transfers; a leader of a later term answers that it leads.
    """

    place: Place
    to: NodeId | None
    timeout_ms: int
    term: Term | None = None


class Prepared(Struct, frozen=True, array_like=True):
    """Ask whether a replica is open, with metadata of ``version`` or newer; answered by ``PreparedAnswer``.

    ``is_added``: the replica is not a member of the group yet, and the leader is about to add it.
    """

    place: Place
    version: int
    is_added: bool = False


class PreparedAnswer(Struct, frozen=True, array_like=True):
    """State of a replica. A rejoining replica is open, but does not count in quorums yet."""

    is_open: bool
    is_rejoining: bool
    reason: str = ""  # why the replica is not open, if known


class MayDelete(Struct, frozen=True, array_like=True):
    """Ask the leader whether the sender may delete its replica; answered with a ``DeleteAnswer``.

    ``version`` is the sender's metadata version. With ``is_added_again`` the sender will host the replica
    again, with an empty log.
    """

    place: Place
    version: int
    is_added_again: bool = False


class DeleteAnswer(Struct, frozen=True, array_like=True):
    """The leader's answer to ``MayDelete``."""

    is_permitted: bool


class LogEndOf(Struct, frozen=True, array_like=True):
    """Ask for the end of a replica's log. Answered with a ``LogEnd``."""

    place: Place


class LogEnd(Struct, frozen=True, array_like=True, kw_only=True):
    """The end of one replica's log, and the voters of its newest membership."""

    last: EntryId
    commit_index: Index
    halves: tuple[frozenset[NodeId], ...]  # sets of voters; a quorum has a majority of each
