"""Which messages are due next.

A new leader takes in the messages that wait a slice at a time, so that its broker does other work between
two slices. Until it has all of them none is due: they leave in the order of their times. When most entries of
the heap are stale, as their messages have left or have another time, the heap is rebuilt in the same way.
"""

from __future__ import annotations

import heapq
from typing import Final

from delayed.pending import SHARDS
from delayed.state import DelayedState

STALE_MIN: Final = 1_000  # stale entries of the heap, before it is rebuilt
SLICE: Final = 4_096  # messages at a time, and the rest of a shard: a few milliseconds


class DueTimes:
    """A heap of the times of messages, with stale entries of those that have left or have another time."""

    def __init__(self, state: DelayedState) -> None:
        self._state = state
        self._heap: list[tuple[int, bytes]] = []
        self._unread = list(range(SHARDS))

    @property
    def is_complete(self) -> bool:
        """Whether it knows all messages."""
        return not self._unread

    def read_some(self) -> None:
        """Take in one more slice."""
        waiting, failed, count = self._state.waiting, self._state.failed, 0
        while self._unread and count < SLICE:
            times = waiting.times_of(self._unread.pop())
            count += len(times)
            for time in times:
                if time[1] not in failed:
                    heapq.heappush(self._heap, time)

    def add(self, due_ms: int, id_: bytes) -> None:
        """A message that waits, or another time of one."""
        if self.is_complete and len(self._heap) > 2 * len(self._state.waiting) + STALE_MIN:
            self._heap.clear()
            self._unread = list(range(SHARDS))
        heapq.heappush(self._heap, (due_ms, id_))

    def next_ms(self) -> int | None:
        """The earliest time."""
        return self._heap[0][0] if self._heap else None

    def take(self, wall_ms: int) -> list[bytes]:
        """Up to a slice of the messages whose times have come, in the order of their times."""
        taken: list[bytes] = []
        while self._heap and self._heap[0][0] <= wall_ms and len(taken) < SLICE:
            due_ms, id_ = heapq.heappop(self._heap)
            if self._state.waiting.due_of(id_) == due_ms:
                taken.append(id_)
        return taken
