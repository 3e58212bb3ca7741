"""Records of retry topics whose time has not come, up to a bound."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final, Generic, TypeVar

from raftlog.clock import Clock
from raftlog.types import TopicPartition

Item = TypeVar("Item")
COUNT_MAX: Final = 10_000
BYTES_MAX: Final = 8 << 20
LOOK_S: Final = 1.0  # at a wall clock that may jump


class EarlyRecords(Generic[Item]):
    """A heap by time. A partition whose records find no room is paused: they stay in the broker."""

    def __init__(self, clock: Clock, *, count_max: int = COUNT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._heap: list[tuple[int, int, Item, int]] = []
        self._numbers = count()
        self._bytes = 0
        self._paused: set[TopicPartition] = set()
        self._added = asyncio.Event()

    def add(self, due_ms: int, item: Item, source: TopicPartition, size_bytes: int) -> bool:
        """Keep an item until its time. Returns whether its partition must be paused now."""
        heapq.heappush(self._heap, (due_ms, next(self._numbers), item, size_bytes))
        self._bytes += size_bytes
        self._added.set()
        is_full = len(self._heap) >= self._count_max or self._bytes >= self._bytes_max
        if not is_full or source in self._paused:
            return False
        self._paused.add(source)
        return True

    def due(self) -> Iterator[Item]:
        """Take out the items whose time has come, the earliest first."""
        now_ms = self._clock.wall_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, item, size_bytes = heapq.heappop(self._heap)
            self._bytes -= size_bytes
            yield item

    def roomy(self) -> set[TopicPartition]:
        """Paused partitions to resume: all, once half of the room is free."""
        if 2 * len(self._heap) > self._count_max or 2 * self._bytes > self._bytes_max:
            return set()
        resumed, self._paused = self._paused, set()
        return resumed

    def clear(self) -> None:
        """Forget all items and all pauses."""
        self._heap.clear()
        self._paused.clear()
        self._bytes = 0

    async def wait(self) -> None:
        """Until the time of an item has come, or may have."""
        self._added.clear()
        if self._heap:
            left_s = (self._heap[0][0] - self._clock.wall_ms()) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, max(0.0, left_s))):
                    await self._added.wait()
        else:
            await self._added.wait()
