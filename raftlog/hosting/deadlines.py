"""The next deadline of each of many keys. Pure.

A key whose deadline is changed or removed leaves a stale entry in the heap. The heap is rebuilt when most
entries are stale, so memory is proportional to the number of keys.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

STALE_MIN: Final = 1_000  # stale entries, before the heap is rebuilt

Key = TypeVar("Key", str, bytes)


class Deadlines(Generic[Key]):
    """One deadline for each key.

    ``before`` are the deadlines of decisions that have ended: their times stay valid, see ``resume``.
    """

    def __init__(self, before: Deadlines[Key] | None = None) -> None:
        self._times: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []
        self._newest: dict[Key, int] = {}  # also of keys without a deadline now
        # The times of ``before``, and of earlier deadlines that were not resumed there.
        self._before: dict[Key, int] = {} if before is None else {**before._before, **before._newest}

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def set(self, key: Key, at_ms: int) -> None:
        """Set the deadline of a key to ``at_ms``; an earlier deadline of the key is replaced."""
        self._times[key] = self._newest[key] = at_ms
        if len(self._newest) > 2 * len(self._times) + STALE_MIN:
            self._newest = dict(self._times)
        if len(self._heap) > 2 * len(self._times) + STALE_MIN:
            self._heap = [(at_ms, key) for key, at_ms in self._times.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at_ms, key))

    def resume(self, key: Key, at_ms: int) -> None:
        """Set the deadline of a key to ``at_ms``, or to its deadline in ``before`` if that is earlier."""
        self.set(key, min(at_ms, self._before.get(key, at_ms)))

    def all_resumed(self) -> None:
        """Forget the deadlines of earlier decisions: ``resume`` was called for all keys that had one."""
        self._before = {}

    def discard(self, key: Key) -> None:
        """Remove the deadline of a key."""
        self._times.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest time at which a key's deadline may pass; None without keys."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> Key | None:
        """Remove and return the next key whose deadline has passed; None if no deadline has passed."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._heap)
            if self._times.get(key) == at_ms:
                del self._times[key]
                return key
        return None
