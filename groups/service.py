"""Access to any group from any broker: calls the local coordinator, or the broker that coordinates the group.

Decides: the partition of ``__offsets`` that has a group, and when the topic is created. Leaves to others: the
replies (``coordinator``), finding the coordinator (``raftlog.hosting.coordinator_service``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from heapq import nsmallest
from itertools import chain
from typing import Final, get_args

from msgspec import Struct, msgpack

from groups.coordinator import GroupCoordinator
from groups.requests import READS, MayWait, Reply, Request, TopicGroup, may_wait, refuses
from raftlog.errors import GroupNotFound
from raftlog.hosting.coordinator_service import Answered, Ask, CoordinatorService, InternalTopic, PeerCalls
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.rpc import decode_body, encode_body, handler_of
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.records.keys import partition_for_key
from raftlog.types import NodeId


class _Tagged(Struct, frozen=True, array_like=True):
    tag: str


class _Asked(Struct, frozen=True, array_like=True):
    """The fields of an ``Ask`` that tell which kind of request it has."""

    partition: int
    timeout_ms: int
    request: _Tagged


_MAY_WAIT: Final = frozenset(kind.__struct_config__.tag for kind in get_args(MayWait))


def _class_of(head: bytes) -> CallClass:
    is_known = msgpack.decode(head, type=_Asked).request.tag in _MAY_WAIT
    waits = is_known and may_wait(msgpack.decode(head, type=Ask[MayWait]).request)
    return CallClass.GROUP_WAIT if waits else CallClass.GROUPS


ASK: Final = Service("groups.ask", CallClass.GROUPS, _class_of)
LIST: Final = Service("groups.list", CallClass.READ)
OF_TOPIC: Final = Service("groups.of_topic", CallClass.READ)
LIST_MS: Final = 5_000
ALL: Final = 1 << 31


class _List(Struct, frozen=True, array_like=True):
    partition: int
    after: str = ""
    count_max: int = ALL  # older brokers ask for all


class GroupSummary(Struct, frozen=True, array_like=True):
    """One group in a list of groups."""

    group: str
    state: str
    members: int
    partition: int


class _OfTopic(Struct, frozen=True, array_like=True):
    partition: int
    topic: str
    topic_id: str
    count_max: int


class GroupService:
    """One broker's access to all groups; also offers the broker's own coordinators to other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        topic: InternalTopic,
        coordinators: Mapping[int, GroupCoordinator],
        calls: PeerCalls,
    ) -> None:
        """``coordinators`` are the coordinators of this broker's replicas, by partition."""
        self._node_id = node_id
        self._topic = topic
        self._calls = calls
        self._coordinators: CoordinatorService[GroupCoordinator, Request, Reply] = CoordinatorService(
            node_id,
            topic,
            coordinators,
            calls,
            ASK,
            asks=Ask[Request],
            answers=Answered[Reply],
            reads=READS,
            refuses=refuses,
        )
        calls.serve(LIST, handler_of(_List, lambda _, asked: self._summaries(asked)))
        calls.serve(OF_TOPIC, handler_of(_OfTopic, lambda _, asked: self._of_topic_at(node_id, asked)))

    async def ask(self, request: Request, *, timeout_ms: int, creates: bool = False) -> Reply:
        """Send a request to the group's coordinator, and return its reply.

        Raises the coordinator's refusals, ``NoLeader`` if no coordinator is found in time, ``CommitUnknown``
        if its answer was lost, and ``GroupNotFound`` if ``__offsets`` does not exist, unless the request
        ``creates`` the group.
        """
        deadline = deadline_in(timeout_ms)
        coordinators = self._coordinators
        count = await (coordinators.partition_count if creates else coordinators.confirmed_count)(timeout_ms)
        if count is None:
            raise GroupNotFound(f"there is no group {request.group!r}", group=request.group)
        return await self._coordinators.ask(
            partition_for_key(request.group.encode(), count),
            request,
            timeout_ms=ms_until(deadline),
            name=f"group {request.group}",
        )

    async def ready(self, *, timeout_ms: int) -> int:
        """Create the topic ``__offsets`` if it is missing; return its number of partitions.

        Raises ``RaftlogError``.
        """
        return await self._coordinators.partition_count(timeout_ms)

    async def list_groups(self, after: str = "", count_max: int = ALL) -> list[GroupSummary]:
        """The groups after the name ``after``, sorted. Raises ``NoLeader`` if a partition has no leader."""
        count = await self._coordinators.confirmed_count(LIST_MS) or 0
        asked = (_List(partition, after, count_max) for partition in range(count))
        found = await asyncio.gather(*map(self._list_one, asked))
        return nsmallest(count_max, chain.from_iterable(found), key=lambda each: each.group)

    async def of_topic(self, topic: str, topic_id: str, count_max: int) -> tuple[int, list[TopicGroup]]:
        """The number of groups that depend on a topic, and the first of these groups by name.

        Raises ``NoLeader``.
        """
        count = await self._coordinators.confirmed_count(LIST_MS) or 0
        asked = (_OfTopic(partition, topic, topic_id, count_max) for partition in range(count))
        found = await asyncio.gather(*map(self._of_topic_one, asked))
        groups = chain.from_iterable(groups for _, groups in found)
        return sum(each for each, _ in found), nsmallest(count_max, groups, key=lambda each: each.group)

    async def coordinator(self, group: str, *, timeout_ms: int) -> tuple[int, NodeId]:
        """The partition of a group, which need not exist yet, and its leader, which has confirmed that it
        leads.

        Creates the topic ``__offsets`` if it is missing. Raises ``RaftlogError``, for example ``NoLeader`` if
        no leader is found in time.
        """
        deadline = deadline_in(timeout_ms)
        partition = partition_for_key(group.encode(), await self.ready(timeout_ms=timeout_ms))

        async def confirmed(node: NodeId) -> NodeId:
            await self._list_at(node, _List(partition, count_max=0))
            return node

        return partition, await self._coordinators.at_leader(partition, confirmed, deadline)

    def coordinator_of(self, group: str) -> tuple[int, NodeId | None] | None:
        """The partition of a group, and its leader as this broker knows it; None without ``__offsets``."""
        count = self._topic.partition_count
        if count is None:
            return None
        partition = partition_for_key(group.encode(), count)
        return partition, self._coordinators.leader_of(partition)

    async def _list_one(self, asked: _List) -> list[GroupSummary]:
        deadline = deadline_in(LIST_MS)
        return await self._coordinators.at_leader(
            asked.partition, lambda node: self._list_at(node, asked), deadline
        )

    async def _list_at(self, node: NodeId, asked: _List) -> list[GroupSummary]:
        if node == self._node_id:
            return await self._summaries(asked)
        answer, _ = await self._calls.call(node, LIST, encode_body(asked), timeout_ms=LIST_MS)
        found = decode_body(answer, list[GroupSummary])
        return [each for each in found if each.group > asked.after]  # older brokers send all groups

    async def _summaries(self, asked: _List) -> list[GroupSummary]:
        coordinator = self._coordinators.here(asked.partition)
        return [
            GroupSummary(name, state, members, asked.partition)
            for name, state, members in await coordinator.summaries(asked.after, asked.count_max)
        ]

    async def _of_topic_one(self, asked: _OfTopic) -> tuple[int, list[TopicGroup]]:
        deadline = deadline_in(LIST_MS)
        return await self._coordinators.at_leader(
            asked.partition, lambda node: self._of_topic_at(node, asked), deadline
        )

    async def _of_topic_at(self, node: NodeId, asked: _OfTopic) -> tuple[int, list[TopicGroup]]:
        if node == self._node_id:
            coordinator = self._coordinators.here(asked.partition)
            return await coordinator.of_topic(asked.topic, asked.topic_id, asked.count_max)
        answer, _ = await self._calls.call(node, OF_TOPIC, encode_body(asked), timeout_ms=LIST_MS)
        return decode_body(answer, tuple[int, list[TopicGroup]])
