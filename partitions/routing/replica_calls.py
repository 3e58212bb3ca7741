"""What stands in the calls between brokers about replicas themselves: who leads, comes, goes, or is left.

As in ``forwarding``, every head begins with topic, partition and group id, and nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgpack

from partitions.routing.forwarding import Place
from raftlog.errors import InvalidRequest
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import EntryId, GroupId, Index, NodeId, Term, TopicPartition

TRANSFER: Final = Service("partition.transfer", CallClass.REPLICAS)
PREPARED: Final = Service("partition.prepared", CallClass.REPLICAS)
MAY_DELETE: Final = Service("partition.may_delete", CallClass.REPLICAS)
LOG_END: Final = Service("partition.log_end", CallClass.REPLICAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """How much one replica holds, and who votes by its log."""

    last: EntryId
    commit_index: Index
    halves: tuple[frozenset[NodeId], ...]  # a majority of each must agree


def pack_place(place: Place, *more: int) -> bytes:
    """Head of a call: the partition, and what else it needs."""
    target, group_id = place
    packed: bytes = msgpack.packb([target.topic, target.partition, group_id, *more])
    return packed


def unpack_place(head: bytes, more: int = 0) -> tuple[Place, list[int]]:
    """The partition that a call is about, and as many numbers behind it."""
    match _unpack(head):
        case [str(topic), int(partition), int(group), *rest] if len(rest) == more:
            numbers = [number for number in rest if isinstance(number, int)]
            if len(numbers) == more:
                return (TopicPartition(topic, partition), GroupId(group)), numbers
    raise _malformed()


def pack_numbers(*numbers: int) -> bytes:
    """An answer of numbers."""
    packed: bytes = msgpack.packb(list(numbers))
    return packed


def unpack_numbers(answer: bytes, count: int) -> list[int]:
    """The numbers of an answer."""
    match _unpack(answer):
        case [*found] if len(found) == count:
            numbers = [number for number in found if isinstance(number, int)]
            if len(numbers) == count:
                return numbers
    raise _malformed()


def pack_log_end(end: LogEnd) -> bytes:
    """The answer to a ``LOG_END``."""
    halves = [sorted(half) for half in end.halves]
    packed: bytes = msgpack.packb([end.last.term, end.last.index, end.commit_index, halves])
    return packed


def unpack_log_end(answer: bytes) -> LogEnd:
    """The end in the answer to a ``LOG_END``."""
    match _unpack(answer):
        case [int(term), int(index), int(commit_index), list(halves)]:
            return LogEnd(
                last=EntryId(Term(term), Index(index)),
                commit_index=Index(commit_index),
                halves=tuple(frozenset(half) for half in halves if isinstance(half, list)),
            )
    raise _malformed()


def _unpack(packed: bytes) -> object:
    try:
        return msgpack.unpackb(packed)
    except ValueError:
        return None


def _malformed() -> InvalidRequest:
    return InvalidRequest("a broker of another version has sent a call about replicas that is not understood")
