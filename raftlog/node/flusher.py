"""One flusher for all logs of a broker: many small writes share one round of syncs.

Decides: which logs a round covers. While one round runs on other threads the next one
gathers, so the busier the disk, the larger the rounds. What may take much longer than a sync runs beside
the rounds, a few at a time; its owner has no other work on the disk meanwhile. Leaves to others: what a
finished or failed sync means.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from raftlog.storage.log_storage import DiskWork, LogChange

RunSyncs = Callable[[Sequence[DiskWork]], Awaitable[list[OSError | None]]]
"""Runs what waits for the disk away from the event loop and says for each whether it failed."""

SYNC_THREADS: Final = 4
LONG_AT_ONCE: Final = 2  # of the changes that take long; the other threads are for syncs


class Flushed(Protocol):
    """A log's owner, whose log the flusher syncs."""

    def begin_sync(self) -> DiskWork | None:
        """The flush or the change to run, or None when nothing is waiting for the disk."""

    def end_sync(self, sync: DiskWork | None, error: OSError | None) -> None:
        """It ran, or failed for good."""


class Flusher:
    """Collects owners with unsynced writes; runs one round of syncs at a time, never two works of one owner.

    ``on_fatal`` is called when a round breaks down for another reason than a failed sync.
    """

    def __init__(self, run_syncs: RunSyncs, on_fatal: Callable[[BaseException], None]) -> None:
        self._run_syncs = run_syncs
        self._on_fatal = on_fatal
        self._dirty: dict[Flushed, None] = {}
        self._round: asyncio.Task[None] | None = None
        self._beside: dict[Flushed, bool] = {}  # whose long work runs, and whether there is more to do
        self._long: set[asyncio.Task[None]] = set()
        self._long_places = asyncio.Semaphore(LONG_AT_ONCE)
        self.rounds = 0
        self.syncs = 0

    def request(self, owner: Flushed) -> None:
        """``owner`` has written something that must become durable."""
        if owner in self._beside:
            self._beside[owner] = True
            return
        self._dirty[owner] = None
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._run())
            self._round.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Return once nothing waits for the disk."""
        while self._round is not None or self._long:
            await asyncio.wait([*self._long, *([] if self._round is None else [self._round])])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)

    async def _run(self) -> None:
        try:
            while self._dirty:
                owners, self._dirty = self._dirty, {}
                taken = []
                for owner in owners:
                    if owner in self._beside:
                        self._beside[owner] = True
                    elif not self._is_set_aside(owner, work := owner.begin_sync()):
                        taken.append((owner, work))
                syncs = [sync for _, sync in taken if sync is not None]
                errors = iter(await self._run_syncs(syncs) if syncs else ())
                self.rounds += 1
                self.syncs += len(syncs)
                for owner, sync in taken:
                    owner.end_sync(sync, None if sync is None else next(errors))
        finally:
            self._round = None

    def _is_set_aside(self, owner: Flushed, work: DiskWork | None) -> bool:
        """Whether it takes long, and runs beside the rounds."""
        if not (isinstance(work, LogChange) and work.is_long):
            return False
        self._beside[owner] = False
        task = asyncio.get_running_loop().create_task(self._run_beside(owner, work))
        self._long.add(task)
        task.add_done_callback(self._long.discard)
        task.add_done_callback(self._ended)
        return True

    async def _run_beside(self, owner: Flushed, work: DiskWork) -> None:
        async with self._long_places:
            [error] = await self._run_syncs([work])
        has_more = self._beside.pop(owner)
        owner.end_sync(work, error)
        if has_more:
            self.request(owner)


class SyncThreads:
    """``RunSyncs`` on a few threads of its own, which live as long as their process.

    The disk does several syncs at once in little more than the time of one, and a hop to a plain
    thread and back costs a third of one through an executor.
    """

    def __init__(self, count: int = SYNC_THREADS) -> None:
        self._waiting: SimpleQueue[tuple[_Round, int]] = SimpleQueue()
        for _ in range(count):
            threading.Thread(target=self._work, name="sync", daemon=True).start()

    def __call__(self, syncs: Sequence[DiskWork]) -> asyncio.Future[list[OSError | None]]:
        """Hand out a whole round; the result is there when its last sync has run."""
        this_round = _Round(syncs)
        for number in range(len(syncs)):
            self._waiting.put((this_round, number))
        return this_round.outcome

    def _work(self) -> None:
        while True:
            this_round, number = self._waiting.get()
            this_round.run(number)
            del this_round  # while this thread waits it keeps no log alive


class _Round:
    """Syncs that run on several threads, and the future that has their errors in the end."""

    __slots__ = ("_broken", "_errors", "_left", "_lock", "_loop", "_syncs", "outcome")

    def __init__(self, syncs: Sequence[DiskWork]) -> None:
        self._syncs = syncs
        self._errors: list[OSError | None] = [None] * len(syncs)
        self._broken: BaseException | None = None
        self._left = len(syncs)
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[list[OSError | None]] = self._loop.create_future()

    def run(self, number: int) -> None:
        """Run one of them; whoever is last tells the loop."""
        try:
            self._errors[number] = _run_one(self._syncs[number])
        except BaseException as error:
            self._broken = error
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and no request waits
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if self.outcome.done():
            return
        if self._broken is not None:
            self.outcome.set_exception(self._broken)
        else:
            self.outcome.set_result(self._errors)


def _run_one(sync: DiskWork) -> OSError | None:
    try:
        sync.run()
    except OSError as error:
        return error
    return None
