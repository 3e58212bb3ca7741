"""Delayed messages of one broker, whose ``__delayed`` is one log in memory that commits at once."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence, Set

from delayed.coordinator import DelayedCoordinator
from delayed.records import KINDS, LaneKey, Message
from delayed.room import MoveRoom
from delayed.service import DelayedService
from raftlog.clock import Clock
from raftlog.errors import UnknownDelayed
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.records.reader import read_records
from raftlog.types import NodeId
from tests.helpers.instant_groups import OneTopic
from tests.helpers.loop_network import LoopNetwork


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
    """See ``delayed.coordinator.Delivery``. What arrives is in ``delivered``."""

    def __init__(self) -> None:
        self.delivered: list[tuple[LaneKey, Message]] = []
        self.kept: dict[int, Message] = {}

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """From the messages that were applied."""
        try:
            return [self.kept[offset] for offset in offsets]
        except KeyError:
            raise UnknownDelayed("it has left") from None

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
        """It arrives at once."""
        self.delivered += ((lane, message) for message in messages)

    def targets_of(self, lane: LaneKey, messages: Sequence[Message]) -> tuple[int, ...]:
        """Partition 0."""
        return tuple(0 for _ in messages)

    async def new_producer_id(self, timeout_ms: int) -> int:
        """Always the same."""
        return 4711

    async def gone(self, lanes: Collection[LaneKey]) -> Set[LaneKey]:
        """None."""
        return set()


def instant_delays(clock: Clock) -> DelayedService:
    """The delayed messages of broker 1."""
    deliveries = Deliveries()
    coordinator = instant_coordinator(clock, deliveries)
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    topic = OneTopic("__delayed", coordinator)
    return DelayedService(NodeId(1), topic, {0: coordinator}, calls, deliveries)


def instant_coordinator(clock: Clock, deliveries: Deliveries | None = None) -> DelayedCoordinator:
    """One whose messages arrive at once."""
    deliveries = deliveries or Deliveries()
    coordinator = _Kept(
        "__delayed/0",
        0,
        clock,
        deliveries,
        pending_max=1_000,
        batch_bytes_max=lambda topic: 1 << 20,
        room=MoveRoom(),
    )
    coordinator.kept = deliveries.kept
    return coordinator
