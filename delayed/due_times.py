"""Orders messages by their due times.

A new leader reads the pending messages in slices, so that its broker does other work between two slices. No
message is due before all slices are read, since messages leave in the order of their times. When most entries
of the heap are stale, because their messages have left or have another time, the heap is rebuilt slice by
slice, too.
"""

from __future__ import annotations

import heapq
from typing import Final

from delayed.pending import SHARDS
from delayed.state import DelayedState

STALE_MIN: Final = 1_000  # stale entries of the heap before it is rebuilt
SLICE: Final = 1_024  # messages of one slice, beside the rest of a shard; a slice takes a few milliseconds
LOOKED_AT_MAX: Final = 1_000  # messages that a search for the first message of a topic examines


class DueTimes:
    """A heap of due times. Entries of messages that have left or have another time are stale."""

    def __init__(self, state: DelayedState) -> None:
        self._state = state
        self._heap: list[tuple[int, bytes]] = []
        self._unread = list(range(SHARDS))

    @property
    def is_complete(self) -> bool:
        """Whether all pending messages have been read into the heap."""
        return not self._unread

    def read_some(self) -> None:
        """Read one more slice of the pending messages."""
        waiting, failed, count = self._state.waiting, self._state.failed, 0
        while self._unread and count < SLICE:
            times = waiting.times_of(self._unread.pop())
            count += len(times)
            for time in times:
                if time[1] not in failed:
                    heapq.heappush(self._heap, time)

    def add(self, due_ms: int, id_: bytes) -> None:
        """Add the due time of a new or rescheduled message."""
        if self.is_complete and len(self._heap) > 2 * len(self._state.waiting) + STALE_MIN:
            self._heap.clear()
            self._unread = list(range(SHARDS))
        heapq.heappush(self._heap, (due_ms, id_))

    def next_ms(self) -> int | None:
        """The earliest due time in milliseconds, possibly of a stale entry; None without an entry."""
        return self._heap[0][0] if self._heap else None

    def first_ms(self, topic: str | None) -> int | None:
        """The earliest due time of the messages of one topic (None: of any topic), except failed messages.

        If many messages of other topics are due earlier, the result is the due time of such a message. None
        without a message, and until all messages have been read.
        """
        waiting, failed, heap, first_ms = self._state.waiting, self._state.failed, self._heap, None
        nearest = [(heap[0], 0)] if heap and self.is_complete else []
        for _ in range(LOOKED_AT_MAX):
            if not nearest:
                return None
            (first_ms, id_), place = heapq.heappop(nearest)
            one = waiting.find(id_)
            is_there = one is not None and topic in (None, one.topic)
            if is_there and waiting.due_of(id_) == first_ms and id_ not in failed:
                break
            below = range(2 * place + 1, min(2 * place + 3, len(heap)))
            for each in below:
                heapq.heappush(nearest, (heap[each], each))
        return first_ms

    def take(self, wall_ms: int) -> list[bytes]:
        """Take up to one slice of the due messages, in the order of their times."""
        taken: list[bytes] = []
        while self._heap and self._heap[0][0] <= wall_ms and len(taken) < SLICE:
            due_ms, id_ = heapq.heappop(self._heap)
            if self._state.waiting.due_of(id_) == due_ms:
                taken.append(id_)
        return taken
