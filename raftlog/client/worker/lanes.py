"""Decides which calls of a worker may begin: one at a time in each lane, in order; lanes run in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Lanes(Generic[Item]):
    """Items in the order of their arrival. An item waits until all earlier items of its lane are done."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Item]] = {}
        self._ready: deque[Hashable] = deque()  # lanes with an item that may begin
        self._busy: set[Hashable] = set()
        self._count = 0

    def __len__(self) -> int:
        """The number of items that have not begun."""
        return self._count

    def add(self, lane: Hashable, item: Item) -> None:
        """Add an item at the end of a lane."""
        self._count += 1
        waiting = self._waiting.get(lane)
        if waiting is not None:
            waiting.append(item)
            return
        self._waiting[lane] = deque((item,))
        if lane not in self._busy:
            self._ready.append(lane)

    def begin(self) -> Item | None:
        """The next item that may begin. Its lane is busy until ``end``."""
        if not self._ready:
            return None
        lane = self._ready.popleft()
        waiting = self._waiting[lane]
        item = waiting.popleft()
        if not waiting:
            del self._waiting[lane]
        self._busy.add(lane)
        self._count -= 1
        return item

    def end(self, lane: Hashable) -> None:
        """Note that the item that began in a lane is done."""
        self._busy.discard(lane)
        if lane in self._waiting:
            self._ready.append(lane)

    def clear(self) -> None:
        """Forget the waiting items. A lane with a running item stays busy."""
        self._waiting.clear()
        self._ready.clear()
        self._count = 0
