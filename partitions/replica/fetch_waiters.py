"""Reads that wait for records which are not committed yet, ordered by the index for which they wait.

Decides: which reads a new commit index wakes. Leaves to others: the result (``reads``). A woken read only
checks its condition again, so a loss of leadership or the deletion of the topic wakes all reads.
"""

from __future__ import annotations

import asyncio

from sortedcontainers import SortedDict

from raftlog.types import Index


class FetchWaiters:
    """The waiting reads of one replica. Most of them wait for the end of the log."""

    def __init__(self) -> None:
        self._by_index: SortedDict[Index, dict[asyncio.Future[None], None]] = SortedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def wait(self, index: Index) -> None:
        """Return once ``index`` may be committed, or after ``wake_all``. The caller may cancel the wait."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_index.setdefault(index, {})[waiter] = None
        self._count += 1
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._forget(index, waiter)

    def advance(self, commit_index: Index) -> None:
        """Wake the waiters for ``commit_index`` or a lower index."""
        while self._by_index and self._by_index.peekitem(0)[0] <= commit_index:
            self._wake(self._by_index.popitem(0)[1])

    def wake_all(self) -> None:
        """Wake all waiters to check their conditions again, after a change other than of the commit index."""
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
            return  # woken and cancelled in one turn of the loop
        del waiters[waiter]
        self._count -= 1
        if not waiters:
            del self._by_index[index]
