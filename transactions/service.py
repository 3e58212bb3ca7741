"""Access to any transaction from any broker: calls the local coordinator, or the broker that coordinates it.

Decides: the partition of ``__transactions`` that has a transactional id, when the topic is created, and when
a new producer id is allocated. Leaves to others: the replies (``coordinator``), finding the coordinator
(``raftlog.hosting.coordinator_service``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from raftlog.errors import OutcomeForgotten, TransactionNotFound
from raftlog.hosting.coordinator_service import Answered, Ask, CoordinatorService, InternalTopic, PeerCalls
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import NodeId
from transactions.batches import partition_of
from transactions.coordinator import TransactionCoordinator
from transactions.listing import Page, merged
from transactions.requests import (
    ALL,
    READS,
    BeginRun,
    End,
    Known,
    Listed,
    ListTransactions,
    NeedsProducerId,
    OfOneId,
    Open,
    ReadOutcomes,
    Reply,
    Request,
    TransactionNumber,
)

ASK: Final = Service("transactions.ask", CallClass.GROUPS)

NewProducerId = Callable[[int], Awaitable[int]]
"""Function that allocates a producer id within a time in milliseconds."""


class TransactionService:
    """One broker's access to all transactions; also offers its own coordinators to other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        topic: InternalTopic,
        coordinators: Mapping[int, TransactionCoordinator],
        calls: PeerCalls,
        new_producer_id: NewProducerId,
    ) -> None:
        """``coordinators`` are the coordinators of this broker's replicas, by partition."""
        self._topic = topic
        self._new_producer_id = new_producer_id
        self._coordinators: CoordinatorService[TransactionCoordinator, Request, Reply] = CoordinatorService(
            node_id, topic, coordinators, calls, ASK, asks=Ask[Request], answers=Answered[Reply], reads=READS
        )

    async def partition_count(self, timeout_ms: int) -> int:
        """The number of partitions of ``__transactions``; the topic is created if missing.

        Raises ``RaftlogError``.
        """
        return await self._coordinators.partition_count(timeout_ms)

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """The number of partitions of ``__transactions``; None if the topic does not exist.

        Raises ``NoLeader``.
        """
        return await self._coordinators.confirmed_count(timeout_ms)

    async def list_some(
        self, after: str = "", count_max: int = ALL, *, open_only: bool, timeout_ms: int
    ) -> Page:
        """The newest (or only open) transactions of the transactional ids after ``after``, sorted by id.

        Raises ``NoLeader`` if a coordinator does not answer.
        """
        request = ListTransactions(open_only=open_only, after=after, count_max=count_max)
        replies = await self._ask_all(request, timeout_ms)
        return merged([reply for reply in replies if isinstance(reply, Listed)], after, count_max)

    async def known(self, asked: Iterable[TransactionNumber], timeout_ms: int) -> Known:
        """The ``asked`` transactions that any coordinator knows to be open or committed.

        Raises ``NoLeader``.
        """
        still_open: list[TransactionNumber] = []
        committed: list[TransactionNumber] = []
        for reply in await self._ask_all(ReadOutcomes(transactions=tuple(asked)), timeout_ms):
            assert isinstance(reply, Known)
            still_open += reply.open
            committed += reply.committed
        return Known(open=tuple(still_open), committed=tuple(committed))

    async def _ask_all(self, request: ListTransactions | ReadOutcomes, timeout_ms: int) -> list[Reply]:
        return await self._coordinators.ask_all(request, timeout_ms=timeout_ms, name="transactions")

    async def ask(self, request: OfOneId, *, timeout_ms: int) -> Reply:
        """Send a request to the coordinator of its transactional id; the reply is never ``NeedsProducerId``.

        Raises the coordinator's refusals, ``NoLeader`` if no coordinator is found in time, ``CommitUnknown``
        if its answer was lost, and ``TransactionNotFound`` (``OutcomeForgotten`` for ``End``) if
        ``__transactions`` does not exist.
        """
        deadline = deadline_in(timeout_ms)
        reply = await self._ask(request, deadline)
        if isinstance(reply, NeedsProducerId):
            assert isinstance(request, Open)
            producer_id = await self._new_producer_id(ms_until(deadline))
            reply = await self._ask(msgspec.structs.replace(request, new_producer_id=producer_id), deadline)
        return reply

    async def _ask(self, request: OfOneId, deadline: float) -> Reply:
        name = request.transactional_id
        creates = isinstance(request, Open | BeginRun)
        count = await (self.partition_count if creates else self.confirmed_count)(ms_until(deadline))
        if count is None and isinstance(request, End):
            raise OutcomeForgotten(f"transactional id {name!r} is unknown, or was forgotten; open it again")
        if count is None:
            raise TransactionNotFound(f"there is no transactional id {name!r}; open it first")
        return await self._coordinators.ask(
            partition_of(name, count),
            request,
            timeout_ms=ms_until(deadline),
            name=f"transactional id {name}",
        )
