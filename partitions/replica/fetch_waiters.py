"""Reads that wait for records which are not committed yet, ordered by the index for which they wait.

Decides: which reads a new commit index wakes. Leaves to others: the result (``reads``). A read that is woken
only checks its condition again, so a loss of leadership or the deletion of the topic wakes all reads.
"""

from __future__ import annotations

import asyncio

from sortedcontainers import SortedDict

from raftlog.types import Index


class FetchWaiters:
    """The parked reads of one replica. Most wait for the same index: the end of the log."""

    def __init__(self) -> None:
        self._by_index: SortedDict[Index, dict[asyncio.Future[None], None]] = SortedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def wait(self, index: Index) -> None:
        """Return once ``index`` may be committed or something else is new. Cancelled, it leaves nothing."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_index.setdefault(index, {})[waiter] = None
        self._count += 1
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._forget(index, waiter)

    def advance(self, commit_index: Index) -> None:
        """Wake the waiters for this index or a lower one."""
        while self._by_index and self._by_index.peekitem(0)[0] <= commit_index:
            self._wake(self._by_index.popitem(0)[1])

    def wake_all(self) -> None:
        """Something other than the commit index is new: everybody looks again."""
        while self._by_index:
            self._wake(self._by_index.popitem(0)[1])

    def _wake(self, waiters: dict[asyncio.Future[None], None]) -> None:
        self._count -= len(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self, index: Index, waiter: asyncio.Future[None]) -> None:
        waiters = self._by_index.get(index)
        if waiters is None or waiter not in waiters:
            return  # woken in the same turn as it was cancelled
        del waiters[waiter]
        self._count -= 1
        if not waiters:
            del self._by_index[index]
