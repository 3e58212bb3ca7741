"""One flusher for all logs of a broker: many small writes share one round of syncs.

Decides: which logs a round covers. While one round runs on another thread the next one
gathers, so the busier the disk, the larger the rounds. Leaves to others: what a finished or
failed sync means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from raftlog.storage.log_storage import Sync

RunSyncs = Callable[[Sequence[Sync]], Awaitable[list[OSError | None]]]
"""Runs syncs away from the event loop and says for each whether it failed."""


class Flushed(Protocol):
    """Who wants to be durable."""

    def begin_sync(self) -> Sync | None:
        """The flush to run, or None when nothing is waiting for the disk."""

    def end_sync(self, sync: Sync | None, error: OSError | None) -> None:
        """It ran, or failed for good."""


class Flusher:
    """Gathers who is dirty and runs one round of syncs at a time.

    ``on_fatal`` is called when a round breaks down for another reason than a failed sync.
    """

    def __init__(self, run_syncs: RunSyncs, on_fatal: Callable[[BaseException], None]) -> None:
        self._run_syncs = run_syncs
        self._on_fatal = on_fatal
        self._dirty: dict[Flushed, None] = {}
        self._round: asyncio.Task[None] | None = None
        self.rounds = 0
        self.syncs = 0

    def request(self, owner: Flushed) -> None:
        """``owner`` has written something that must become durable."""
        self._dirty[owner] = None
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._run())
            self._round.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Return once nothing waits for the disk."""
        while self._round is not None:
            await asyncio.wait([self._round])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)

    async def _run(self) -> None:
        try:
            while self._dirty:
                owners, self._dirty = self._dirty, {}
                taken = [(owner, owner.begin_sync()) for owner in owners]
                syncs = [sync for _, sync in taken if sync is not None]
                errors = iter(await self._run_syncs(syncs) if syncs else ())
                self.rounds += 1
                self.syncs += len(syncs)
                for owner, sync in taken:
                    owner.end_sync(sync, None if sync is None else next(errors))
        finally:
            self._round = None


def run_on_thread(executor: Executor) -> RunSyncs:
    """``RunSyncs`` on an executor's thread: one hop for a whole round."""

    async def run(syncs: Sequence[Sync]) -> list[OSError | None]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(executor, _run_all, syncs)

    return run


def _run_all(syncs: Sequence[Sync]) -> list[OSError | None]:
    return [_run_one(sync) for sync in syncs]


def _run_one(sync: Sync) -> OSError | None:
    try:
        sync.run()
    except OSError as error:
        return error
    return None
