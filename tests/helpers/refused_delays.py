"""Targets that refuse delayed messages, and coordinators that deliver to them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence, Set

from delayed.coordinator import DelayedCoordinator
from delayed.records import LaneKey, Message
from delayed.room import MoveRoom
from raftlog.clock import Clock
from raftlog.errors import NoLeader, RecordTooLarge


class Refusing:
    """See ``delayed.coordinator.Delivery``. Targets have no leader, or refuse for good."""

    def __init__(self, *, is_too_large: bool) -> None:
        self.is_too_large = is_too_large
        self.tried: list[tuple[int, int, int]] = []
        self.at_a_time = self.at_a_time_max = 0

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """Always the same message."""
        return [Message(topic="orders", topic_id="orders", partition=0, due_ms=0, accepted_ms=0)]

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
        """Refused, at once or after the whole time."""
        self.tried.append((producer_id, epoch, sequence))
        if self.is_too_large:
            raise RecordTooLarge("too large")
        self.at_a_time += 1
        self.at_a_time_max = max(self.at_a_time_max, self.at_a_time)
        try:
            await asyncio.sleep(timeout_ms / 1000)
        finally:
            self.at_a_time -= 1
        raise NoLeader("no leader")

    def targets_of(self, lane: LaneKey, messages: Sequence[Message]) -> tuple[int, ...]:
        """Partition 0."""
        return tuple(0 for _ in messages)

    async def new_producer_id(self, timeout_ms: int) -> int:
        """Always the same."""
        return 8

    async def gone(self, lanes: Collection[LaneKey]) -> Set[LaneKey]:
        """None."""
        return set()


def coordinator_of(
    delivery: Refusing, clock: Clock, kind: type[DelayedCoordinator] = DelayedCoordinator
) -> DelayedCoordinator:
    return kind(
        "__delayed/0",
        0,
        clock,
        delivery,
        pending_max=100,
        batch_bytes_max=lambda topic: 1 << 20,
        room=MoveRoom(),
    )
