"""Access to any delayed message from any broker: calls the local coordinator, or the coordinator's broker.

Decides: the texts of ids, the partition of ``__delayed`` that has a message, when the topic is created, and
when a producer id is allocated. Leaves to others: the replies (``coordinator``), finding the coordinator
(``raftlog.hosting.coordinator_service``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from delayed.coordinator import DelayedCoordinator, Delivery
from delayed.records import ID_BYTES, Message
from delayed.requests import (
    READS,
    Add,
    Added,
    Cancel,
    Counted,
    CountTopic,
    CreateSchedule,
    DeleteSchedule,
    Described,
    DescribedSchedule,
    Found,
    FoundSchedules,
    Moving,
    NeedsProducerId,
    PauseSchedule,
    Read,
    ReadMany,
    ReadMoving,
    ReadSchedule,
    ReadSchedules,
    Reply,
    Request,
    Reschedule,
    ScheduleRequest,
    When,
)
from raftlog.errors import DelayedNotFound, ScheduleNotFound
from raftlog.hosting.coordinator_service import Answered, Ask, CoordinatorService, InternalTopic, PeerCalls
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.records.keys import partition_for_key
from raftlog.types import NodeId

ASK: Final = Service("delayed.ask", CallClass.GROUPS)
PARTITION_DIGITS: Final = 4


class MessageId(NamedTuple):
    """Partition of ``__delayed`` and id of a message. Clients see its text, which sorts in an equal order."""

    partition: int
    id: bytes

    def __str__(self) -> str:
        return f"{self.partition:0{PARTITION_DIGITS}x}{self.id.hex()}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Parse a message id in the form of ``str``. Raises ``DelayedNotFound`` for any other text."""
        try:
            data = bytes.fromhex(text)
        except ValueError:
            data = b""
        found = cls(int.from_bytes(data[:2], "big"), data[2:])
        if len(found.id) != ID_BYTES or str(found) != text:
            raise DelayedNotFound(
                f"{text[:64]!r} is not the id of a delayed message; send a delayed_id unchanged"
            )
        return found


NAME: Final = "delayed messages"  # in error texts


class DelayedService:
    """One broker's access to all delayed messages; also offers its own coordinators to other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        topic: InternalTopic,
        coordinators: Mapping[int, DelayedCoordinator],
        calls: PeerCalls,
        delivery: Delivery,
    ) -> None:
        """``coordinators`` are the coordinators of this broker's replicas, by partition."""
        self._delivery = delivery
        self._topic = topic
        self._coordinators: CoordinatorService[DelayedCoordinator, Request, Reply] = CoordinatorService(
            node_id, topic, coordinators, calls, ASK, asks=Ask[Request], answers=Answered[Reply], reads=READS
        )

    async def add(self, request: Add, spread: int, timeout_ms: int) -> tuple[int, Added]:
        """Accept messages, all or none, in one partition of ``__delayed``; the topic is created if missing.

        ``spread`` selects the partition, which the call returns. Raises the coordinator's refusals,
        ``NoLeader``, and ``CommitUnknown``.
        """
        deadline = deadline_in(timeout_ms)
        count = await self._coordinators.partition_count(timeout_ms)
        partition = spread % count
        reply = await self._ask_with_producer(partition, request, deadline)
        assert isinstance(reply, Added)
        return partition, reply

    async def read(self, which: MessageId, timeout_ms: int) -> Described:
        """Describe one pending or failed message. Raises ``DelayedNotFound``, ``DelayedAlreadyDelivered``."""
        return _only(await self._ask_about(which, Read(id=which.id), timeout_ms))

    async def reschedule(
        self, which: MessageId, when: When, *, delay_ms_max: int, timeout_ms: int
    ) -> Described:
        """Give a message another due time. Raises as ``read``, and ``InvalidRequest``."""
        request = Reschedule(id=which.id, when=when, delay_ms_max=delay_ms_max)
        return _only(await self._ask_about(which, request, timeout_ms))

    async def cancel(self, which: MessageId, timeout_ms: int) -> None:
        """Cancel a message; return once the cancellation is committed. Raises as ``read``."""
        await self._ask_about(which, Cancel(id=which.id), timeout_ms)

    async def list_some(
        self, topic: str | None, after: MessageId | None, count_max: int, timeout_ms: int
    ) -> list[tuple[MessageId, Described]]:
        """Read up to ``count_max`` messages with ids after ``after``, sorted by id. Raises ``NoLeader``."""
        found: list[tuple[MessageId, Described]] = []
        count = await self._coordinators.confirmed_count(timeout_ms) or 0
        begin = MessageId(0, b"") if after is None else after
        for partition in range(begin.partition, count):
            behind = begin.id if partition == begin.partition else b""
            request = ReadMany(topic=topic, after=behind, count_max=count_max - len(found))
            reply = await self._ask(partition, request, timeout_ms)
            assert isinstance(reply, Found)
            found += ((MessageId(partition, one.id), one) for one in reply.messages)
            if len(found) >= count_max:
                break
        return found

    async def message(self, which: MessageId, found: Described, timeout_ms: int) -> Message:
        """Read the content of a message that ``found`` describes.

        Raises ``DelayedNotFound`` if it has left since.
        """
        offset = found.waiting.offset
        (message,) = await self._delivery.read(which.partition, [offset], timeout_ms)
        return message

    async def is_moving_to(self, topic: str, partition: int, timeout_ms: int) -> bool:
        """Whether any coordinator has messages in delivery to this partition. Raises ``NoLeader``."""
        request = ReadMoving(topic=topic, partition=partition)
        for coordinator in range(await self._coordinators.confirmed_count(timeout_ms) or 0):
            reply = await self._ask(coordinator, request, timeout_ms)
            assert isinstance(reply, Moving)
            if reply.is_moving:
                return True
        return False

    async def count(self, topic: str, topic_id: str, timeout_ms: int) -> Counted:
        """Count the messages and schedules of a topic. Raises ``NoLeader``."""
        request = CountTopic(topic=topic, topic_id=topic_id)
        replies = await self._coordinators.ask_all(request, timeout_ms=timeout_ms, name=NAME)
        found = [reply for reply in replies if isinstance(reply, Counted)]
        return Counted(
            sum(each.pending for each in found),
            sum(each.failed for each in found),
            sum(each.schedules for each in found),
        )

    # Schedules. The id of a schedule selects its partition of ``__delayed``.

    async def create_schedule(self, request: CreateSchedule, timeout_ms: int) -> DescribedSchedule:
        """Create a schedule, or describe an equal schedule that exists.

        Raises ``Conflict`` if a schedule with this id has other contents.
        """
        deadline = deadline_in(timeout_ms)
        count = await self._coordinators.partition_count(timeout_ms)
        partition = partition_for_key(request.id.encode(), count)
        return _only_schedule(await self._ask_with_producer(partition, request, deadline))

    async def read_schedule(self, name: str, timeout_ms: int) -> DescribedSchedule:
        """Describe one schedule. Raises ``ScheduleNotFound``."""
        return _only_schedule(await self._ask_of(name, ReadSchedule(id=name), timeout_ms))

    async def pause_schedule(self, name: str, is_paused: bool, timeout_ms: int) -> DescribedSchedule:
        """Pause a schedule, or resume a schedule from now on. Raises ``ScheduleNotFound``."""
        return _only_schedule(
            await self._ask_of(name, PauseSchedule(id=name, is_paused=is_paused), timeout_ms)
        )

    async def delete_schedule(self, name: str, timeout_ms: int) -> None:
        """Delete a schedule. Raises ``ScheduleNotFound``."""
        await self._ask_of(name, DeleteSchedule(id=name), timeout_ms)

    async def list_schedules(
        self, topic: str | None, after: tuple[int, str], count_max: int, timeout_ms: int
    ) -> list[tuple[int, DescribedSchedule]]:
        """Read up to ``count_max`` schedules after ``after``: a partition of ``__delayed`` and the id of a
        schedule.

        Sorted by partition and id.
        """
        found: list[tuple[int, DescribedSchedule]] = []
        count = await self._coordinators.confirmed_count(timeout_ms) or 0
        for partition in range(after[0], count):
            behind = after[1] if partition == after[0] else ""
            request = ReadSchedules(topic=topic, after=behind, count_max=count_max - len(found))
            reply = await self._ask(partition, request, timeout_ms)
            assert isinstance(reply, FoundSchedules)
            found += ((partition, one) for one in reply.schedules)
            if len(found) >= count_max:
                break
        return found

    async def _ask_of(self, name: str, request: ScheduleRequest, timeout_ms: int) -> Reply:
        count = await self._coordinators.confirmed_count(timeout_ms)
        if count is None:
            raise ScheduleNotFound(f"there is no schedule {name}")
        return await self._ask(partition_for_key(name.encode(), count), request, timeout_ms)

    async def _ask_with_producer(
        self, partition: int, request: Add | CreateSchedule, deadline: float
    ) -> Reply:
        reply = await self._ask(partition, request, ms_until(deadline))
        if isinstance(reply, NeedsProducerId):
            producer_id = await self._delivery.new_producer_id(ms_until(deadline))
            request = msgspec.structs.replace(request, new_producer_id=producer_id)
            reply = await self._ask(partition, request, ms_until(deadline))
        return reply

    async def _ask_about(self, which: MessageId, request: Request, timeout_ms: int) -> Reply:
        count = await self._coordinators.confirmed_count(timeout_ms)
        if count is None or which.partition >= count:
            raise DelayedNotFound(f"there is no delayed message {which}")
        return await self._ask(which.partition, request, timeout_ms)

    async def _ask(self, partition: int, request: Request, timeout_ms: int) -> Reply:
        return await self._coordinators.ask(partition, request, timeout_ms=timeout_ms, name=NAME)


def _only(reply: Reply) -> Described:
    assert isinstance(reply, Found)
    if not reply.messages:
        raise DelayedNotFound("the delayed message was delivered or cancelled since the request")
    return reply.messages[0]


def _only_schedule(reply: Reply) -> DescribedSchedule:
    assert isinstance(reply, FoundSchedules)
    return reply.schedules[0]
