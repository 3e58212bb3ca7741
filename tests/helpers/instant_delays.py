"""Delayed messages of one broker: targets that take or refuse them, and coordinators on a log in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence, Set
from typing import TypeVar

from delayed.coordinator import DelayedCoordinator
from delayed.records import KINDS, LaneKey, Message
from delayed.room import MoveRoom
from delayed.service import DelayedService
from delayed.values import TopicKey
from raftlog.clock import TrustedClock
from raftlog.errors import DelayedNotFound, NoLeader, RecordTooLarge
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.records.reader import read_records
from raftlog.types import NodeId
from tests.helpers.instant_groups import OneTopic
from tests.helpers.loop_network import LoopNetwork

Kind = TypeVar("Kind", bound=DelayedCoordinator)


class _Kept(DelayedCoordinator):
    """It keeps the messages that it applies in ``kept``, since there is no log to read."""

    kept: dict[int, Message]

    def apply(self, entry: Batch) -> None:
        """See ``KeyedState.apply``."""
        super().apply(entry)
        for record in read_records(entry):
            known = KINDS.decoded(record.key, record.value)
            if known is not None and isinstance(known[1], Message):
                self.kept[record.offset] = known[1]


class Deliveries:
    """A ``delayed.coordinator.Delivery`` that keeps arrivals in ``delivered``, attempts in ``tried``."""

    def __init__(self) -> None:
        self.delivered: list[tuple[LaneKey, Message]] = []
        self.tried: list[tuple[int, int, int]] = []
        self.kept: dict[int, Message] = {}

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """From the messages that were applied."""
        try:
            return [self.kept[offset] for offset in offsets]
        except KeyError:
            raise DelayedNotFound("it has left") from None

    def begin(self, partition: int, *, is_led: bool) -> None:
        """Nothing that was read is kept."""

    async def append(
        self,
        lane: LaneKey,
        messages: Sequence[Message],
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        timeout_ms: int,
    ) -> None:
        """Noted, and taken or refused."""
        self.tried.append((producer_id, epoch, sequence))
        await self.take(timeout_ms)
        self.delivered += ((lane, message) for message in messages)

    async def take(self, timeout_ms: int) -> None:
        """At once."""

    def targets_of(self, lane: LaneKey, messages: Sequence[Message]) -> tuple[int, ...]:
        """Partition 0."""
        return tuple(0 for _ in messages)

    async def new_producer_id(self, timeout_ms: int) -> int:
        """Always the same."""
        return 4711

    async def gone(self, lanes: Collection[LaneKey]) -> Set[LaneKey]:
        """None."""
        return set()

    async def deleted(self, topics: Collection[TopicKey]) -> Set[TopicKey]:
        """None."""
        return set()


class Refusing(Deliveries):
    """Targets that have no leader, or refuse for good."""

    def __init__(self, *, is_too_large: bool) -> None:
        super().__init__()
        self.is_too_large = is_too_large
        self.at_a_time = self.at_a_time_max = 0

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """Always the same message."""
        return [Message(topic="orders", topic_id="orders", partition=0, due_ms=0, accepted_ms=0)]

    async def take(self, timeout_ms: int) -> None:
        """Refused, at once or after the whole time."""
        if self.is_too_large:
            raise RecordTooLarge("too large")
        self.at_a_time += 1
        self.at_a_time_max = max(self.at_a_time_max, self.at_a_time)
        try:
            await asyncio.sleep(timeout_ms / 1000)
        finally:
            self.at_a_time -= 1
        raise NoLeader("no leader")


def instant_delays(clock: TrustedClock) -> DelayedService:
    """The delayed messages of broker 1."""
    deliveries = Deliveries()
    coordinator = instant_coordinator(clock, deliveries)
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    topic = OneTopic("__delayed", coordinator)
    return DelayedService(NodeId(1), topic, {0: coordinator}, calls, deliveries)


def instant_coordinator(clock: TrustedClock, deliveries: Deliveries | None = None) -> DelayedCoordinator:
    """One whose messages arrive at once."""
    deliveries = deliveries or Deliveries()
    coordinator = coordinator_of(deliveries, clock, _Kept, pending_max=1_000)
    coordinator.kept = deliveries.kept
    return coordinator


def coordinator_of(
    deliveries: Deliveries, clock: TrustedClock, kind: type[Kind], *, pending_max: int = 100
) -> Kind:
    """A coordinator that has not begun to lead."""
    return kind(
        "__delayed/0",
        0,
        clock,
        deliveries,
        pending_max=pending_max,
        batch_bytes_max=lambda topic: 1 << 20,
        room=MoveRoom(),
    )
