"""Access to any coordinator from any broker: the local coordinator, or one hop to the partition's leader.

Decides: that every request may be repeated, and the error for a caller if no coordinator answers. Leaves to
others: the replies (``coordinator``), which partition coordinates what (the packages), how a leader is found
(``raftlog.node.leader_search``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from raftlog.errors import CommitUnknown, NoLeader, NotLeader
from raftlog.hosting.coordinator import Coordinator
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.leader_search import InDoubt, LeaderNotFound, LeaderSearch
from raftlog.node.rpc import Handler, decode_body, encode_body, handler_of
from raftlog.node.rpc_classes import Service
from raftlog.types import NodeId

GRACE_MS: Final = 500  # the coordinator's own timeout should come first: its error says more
RETRY_AFTER_MS: Final = 200

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Answer = TypeVar("Answer")
AnyCoordinator = TypeVar("AnyCoordinator", bound=Coordinator[Any, Any, Any, Any])


class InternalTopic(Protocol):
    """A topic whose partition leaders are coordinators, as this broker knows it."""

    @property
    def name(self) -> str:
        """The name of the topic."""

    @property
    def partition_count(self) -> int | None:
        """The number of partitions; None until the topic exists and this broker knows it."""

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """The number of partitions, as a confirmed controller knows it; None if the topic does not exist.

        Raises ``NoLeader``.
        """

    async def create(self, timeout_ms: int) -> int:
        """Create the topic if it is missing; return its number of partitions. Raises ``RaftlogError``."""

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """The brokers that may lead a partition, the most likely first."""


class PeerCalls(Protocol):
    """Calls to other brokers, and the services that this broker offers to them."""

    def serve(self, service: Service, handler: Handler, /) -> None:
        """Offer a service to other brokers; see ``Calls.serve``."""

    async def call(
        self, node: NodeId, service: Service, head: bytes, /, *, timeout_ms: int
    ) -> tuple[bytes, memoryview]:
        """Call a service of another broker, perhaps through a third broker; see ``Calls.call``."""


class Ask(Struct, Generic[Request], frozen=True, array_like=True):
    """A request to the coordinator of a partition; the answer is an ``Answered``."""

    partition: int
    timeout_ms: int
    request: Request


class Answered(Struct, Generic[Reply], frozen=True, array_like=True):
    """The reply of a coordinator to an ``Ask``."""

    reply: Reply


class CoordinatorService(Generic[AnyCoordinator, Request, Reply]):
    """The coordinators of one topic. Offers this broker's coordinators to the other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        topic: InternalTopic,
        coordinators: Mapping[int, AnyCoordinator],
        calls: PeerCalls,
        service: Service,
        *,
        asks: type[Ask[Request]],
        answers: type[Answered[Reply]],
        reads: tuple[type[Any], ...],
        refuses: Callable[[Reply], bool] = lambda reply: False,
    ) -> None:
        """Offer the service. ``coordinators``: the coordinators of this broker's replicas, by partition.

        ``reads`` are the classes of requests that write no record. ``refuses`` says whether a reply refuses a
        part of its request.
        """
        self.topic = topic
        self._node_id = node_id
        self._coordinators = coordinators
        self._calls = calls
        self._service = service
        self._answers = answers
        self._reads = reads
        self._refuses = refuses
        self._leaders: dict[Hashable, NodeId] = {}  # by partition, the broker that has answered last
        calls.serve(service, handler_of(asks, self._serve))

    async def partition_count(self, timeout_ms: int) -> int:
        """The number of partitions of the topic, created if it is missing. Raises ``RaftlogError``."""
        count = self.topic.partition_count
        return await self.topic.create(timeout_ms) if count is None else count

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """The number of partitions of the topic, or None while it is missing. Raises ``NoLeader``."""
        count = self.topic.partition_count
        return await self.topic.confirmed_count(timeout_ms) if count is None else count

    async def ask_all(self, request: Request, *, timeout_ms: int, name: str) -> list[Reply]:
        """The replies of the coordinators of all partitions, in order. Raises the errors of ``ask``."""
        count = await self.confirmed_count(timeout_ms) or 0
        asked = (self.ask(each, request, timeout_ms=timeout_ms, name=name) for each in range(count))
        return await asyncio.gather(*asked)

    async def ask(self, partition: int, request: Request, *, timeout_ms: int, name: str) -> Reply:
        """The reply of a partition's coordinator. ``name`` is the subject of the request, for people.

        Raises the coordinator's refusals, ``NoLeader`` if no coordinator is found in time, and
        ``CommitUnknown`` if its answer was lost.
        """
        deadline, is_repeated = deadline_in(timeout_ms), False

        def repeat() -> bool:
            nonlocal is_repeated
            is_repeated = True
            return True

        async def ask_node(node: NodeId) -> Reply:
            left_ms = ms_until(deadline)
            if node == self._node_id:
                answer: Reply = await self.here(partition).ask(request, left_ms)
                return answer
            head = encode_body(Ask(partition, left_ms, request))
            body, _ = await self._calls.call(node, self._service, head, timeout_ms=left_ms + GRACE_MS)
            return decode_body(body, self._answers).reply

        lost = f"{name}: its coordinator did not answer; repeat the request"
        try:
            is_repeatable = None if isinstance(request, self._reads) else repeat
            reply = await self.at_leader(partition, ask_node, deadline, is_repeatable=is_repeatable)
        except InDoubt as failure:  # also if the coordinator refuses the repetition
            raise CommitUnknown(lost) from failure
        if is_repeated and self._refuses(reply):
            raise CommitUnknown(lost)
        return reply

    def leader_of(self, partition: int) -> NodeId | None:
        """The leader of a partition according to its replica on this broker, or the broker that answered
        last.
        """
        known = next(iter(self.topic.candidates(partition)), None)
        return self._leaders.get(partition) if known is None else known

    async def at_leader(
        self,
        partition: int,
        ask_node: Callable[[NodeId], Awaitable[Answer]],
        deadline: float,
        *,
        is_repeatable: Callable[[], bool] | None = None,
    ) -> Answer:
        """Ask the leader; see ``LeaderSearch.ask``. Raises ``NoLeader`` if no leader is found in time."""

        def candidates() -> tuple[NodeId | None, ...]:
            known = self.topic.candidates(partition)
            return *known[:1], self._leaders.get(partition), *known[1:]

        search = LeaderSearch(deadline, leaders=self._leaders, group=partition)
        try:
            return await search.ask(candidates, ask_node, is_repeatable=is_repeatable)
        except LeaderNotFound as failure:
            why = "" if failure.last is None else f": {failure.last}"
            raise NoLeader(
                f"{self.topic.name}/{partition} has no leader now{why}; retry", retry_after_ms=RETRY_AFTER_MS
            ) from failure.last

    def here(self, partition: int) -> AnyCoordinator:
        """The coordinator of a partition on this broker.

        Raises ``NotLeader`` if the broker has no replica.
        """
        found = self._coordinators.get(partition)
        if found is None:
            raise NotLeader(f"this broker has no replica of {self.topic.name}/{partition}", leader=None)
        return found

    async def _serve(self, sender: NodeId, asked: Ask[Request]) -> Answered[Reply]:
        return Answered(await self.here(asked.partition).ask(asked.request, asked.timeout_ms))
