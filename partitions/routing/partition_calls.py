"""Calls to the leader of one partition; each call is declared once with its name, its bodies and its handler.

To add a call, write the struct of its request in ``rpc`` and a ``PartitionCall`` in ``CALLS``: every broker
then carries out the call at its replicas and relays it for other brokers (``LocalReplicas.offer``), and
``Gateway.call`` finds the leader, asks it, and repeats the call if a second execution is harmless. A call
that needs more than the replica is declared and offered by the part of the broker that carries it out
(``reassignment.admin``). Appends and fetches have batches as payloads, and separate code.

Brokers of other releases depend on the names of the calls, and on the order of the fields of the structs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, Generic, Protocol, TypeVar

from partitions.replica.replica import PartitionReplica
from partitions.routing import rpc
from partitions.routing.relay import Relay
from partitions.routing.rpc import Place
from raftlog.node.rpc import Calls, decode_body, encode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import Index, NodeId, Offset


class Placed(Protocol):
    """A request about one partition."""

    @property
    def place(self) -> Place:
        """The partition and its Raft group."""


Request = TypeVar("Request", bound=Placed)
Answer = TypeVar("Answer")
NO_ANSWER: Final = encode_body(None)


@dataclass(frozen=True, slots=True)
class PartitionCall(Generic[Request, Answer]):
    """A call about one partition. ``carry_out`` raises ``NotLeader`` at a replica that does not lead.

    ``is_repeatable`` says whether a request may be carried out twice; it is None for calls that only read.
    ``effect`` describes the possible effect of a request whose answer was lost.
    """

    service: Service
    request: type[Request]
    answer: type[Answer]
    carry_out: Callable[[PartitionReplica, Request], Awaitable[Answer]]
    is_repeatable: Callable[[Request], bool] | None = None
    effect: Callable[[Request], str] | None = None

    async def ask(self, calls: Calls | Relay, node: NodeId, request: Request, timeout_ms: int) -> Answer:
        """Send a request to another broker and decode its answer. Raises as ``Calls.call``."""
        answer, _ = await calls.call(node, self.service, encode_body(request), timeout_ms=timeout_ms)
        return decode_body(answer or NO_ANSWER, self.answer)


MARK: Final = PartitionCall(
    Service("partition.mark", CallClass.PRODUCE),
    rpc.Mark,
    NoneType,
    lambda replica, ask: replica.mark(ask.marker, timeout_ms=ask.timeout_ms),
    is_repeatable=lambda ask: True,
)

DELETE_BEFORE: Final = PartitionCall(
    Service("partition.delete_before", CallClass.PRODUCE),
    rpc.DeleteBefore,
    Offset,
    lambda replica, ask: replica.delete_before(ask.offset, timeout_ms=ask.timeout_ms),
    is_repeatable=lambda ask: True,
    effect=lambda ask: f"the records of {ask.place[0]} below {ask.offset} are deleted",
)

SET_ARCHIVED: Final = PartitionCall(
    Service("partition.set_archived", CallClass.PRODUCE),
    rpc.SetArchived,
    Offset,
    lambda replica, ask: replica.set_archived(ask.archived, timeout_ms=ask.timeout_ms),
    is_repeatable=lambda ask: True,
    effect=lambda ask: f"{ask.place[0]} is archived up to {ask.archived.offset}",
)

OFFSET_AT: Final = PartitionCall(
    Service("partition.offset_at", CallClass.READ),
    rpc.OffsetAt,
    tuple[Offset, int | None],
    lambda replica, ask: replica.offset_at(ask.position, committed_only=ask.committed_only),
)

READ_INDEX: Final = PartitionCall(
    Service("partition.read_index", CallClass.READ),
    rpc.ReadIndex,
    Index,
    lambda replica, ask: replica.read_index(),
)

CALLS: Final[tuple[PartitionCall[Any, Any], ...]] = MARK, DELETE_BEFORE, SET_ARCHIVED, OFFSET_AT, READ_INDEX
