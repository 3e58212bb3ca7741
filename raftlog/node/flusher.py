"""One flusher for all logs of a broker: many small writes share one round of syncs.

Decides: which logs a round covers. While a round runs on other threads, requests for the next round are
collected, so the busier the disk, the larger the rounds. Work that may take much longer than a sync runs
beside the rounds, a few works at a time; its owner has no other disk work meanwhile. Leaves to others: the
consequences of a finished or failed sync.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from raftlog.durations import Durations
from raftlog.exhaustion import exhaustion
from raftlog.storage.log_storage import DiskWork, LogChange

Errors = list[OSError | None]
RoundEnded = Callable[[Errors | BaseException], None]
"""A callback for the end of a round, with the errors of its works, or the error that broke the round."""

RunSyncs = Callable[[Sequence[DiskWork], RoundEnded], None]
"""A function that runs disk works away from the event loop, and then calls its other argument on the loop."""

SYNC_THREADS: Final = 4
ROUND_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LONG_AT_ONCE: Final = 2  # changes that take long; the other threads are for syncs


class Flushed(Protocol):
    """The owner of a log that the flusher syncs."""

    def begin_sync(self) -> DiskWork | None:
        """The flush or the change to run on the disk; None if the log has neither."""

    def end_sync(self, sync: DiskWork | None, error: OSError | None) -> None:
        """Note that the flush or the change has run, or has failed finally."""


class Flusher:
    """Collects owners with unsynced writes and runs one round of syncs at a time.

    Two works of one owner never run at a time. ``on_fatal`` is called when a round breaks for another reason
    than a failed sync.
    """

    def __init__(self, run_syncs: RunSyncs, on_fatal: Callable[[BaseException], None]) -> None:
        self._run_syncs = run_syncs
        self._on_fatal = on_fatal
        self._dirty: dict[Flushed, None] = {}
        self._is_running = False
        self._idlers: list[asyncio.Future[None]] = []
        self._beside: dict[Flushed, bool] = {}  # owners whose long work runs; whether they have more work
        self._long: set[asyncio.Task[None]] = set()
        self._long_places = asyncio.Semaphore(LONG_AT_ONCE)
        self.rounds = 0
        self.syncs = 0
        self.durations = Durations(ROUND_S)
        self._began_s = 0.0

    def request(self, owner: Flushed) -> None:
        """Include ``owner`` in the next round: it has written data that must become durable."""
        if owner in self._beside:
            self._beside[owner] = True
            return
        self._dirty[owner] = None
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    async def idle(self) -> None:
        """Return once no log waits for the disk."""
        while self._is_running or self._long:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idlers.append(ended)
            await ended

    def _begin_round(self) -> None:
        """Begin a round of the requested works. The end of the round begins the next round."""
        try:
            while self._dirty:
                owners, self._dirty = self._dirty, {}
                taken: list[tuple[Flushed, DiskWork | None]] = []
                syncs: list[DiskWork] = []
                for owner in owners:
                    if owner in self._beside:
                        self._beside[owner] = True
                    elif isinstance(work := owner.begin_sync(), LogChange) and work.is_long:
                        self._set_aside(owner, work)
                    else:
                        taken.append((owner, work))
                        if work is not None:
                            syncs.append(work)
                if syncs:
                    self._began_s = asyncio.get_running_loop().time()
                    self._run_syncs(syncs, partial(self._round_ended, taken))
                    return
                self._end_round(taken, ())
        except BaseException as error:
            self._on_fatal(error)
        self._is_running = False
        if self._idlers:
            self._wake_idlers()

    def _round_ended(
        self, taken: Sequence[tuple[Flushed, DiskWork | None]], result: Errors | BaseException
    ) -> None:
        try:
            if isinstance(result, BaseException):
                raise result
            self.durations.add(asyncio.get_running_loop().time() - self._began_s)
            self._end_round(taken, result)
        except BaseException as error:
            self._is_running = False
            self._wake_idlers()
            self._on_fatal(error)
            return
        self._begin_round()

    def _end_round(
        self, taken: Sequence[tuple[Flushed, DiskWork | None]], errors: Iterable[OSError | None]
    ) -> None:
        self.rounds += 1
        each = iter(errors)
        for owner, sync in taken:
            self.syncs += sync is not None
            owner.end_sync(sync, None if sync is None else next(each))

    def _wake_idlers(self) -> None:
        idlers, self._idlers = self._idlers, []
        for idler in idlers:
            if not idler.done():
                idler.set_result(None)

    def _long_ended(self, task: asyncio.Task[None]) -> None:
        self._long.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)
        self._wake_idlers()

    def _set_aside(self, owner: Flushed, work: LogChange) -> None:
        """Run a long change outside of the rounds, on its own."""
        self._beside[owner] = False
        task = asyncio.get_running_loop().create_task(self._run_beside(owner, work))
        self._long.add(task)
        task.add_done_callback(self._long_ended)

    async def _run_beside(self, owner: Flushed, work: DiskWork) -> None:
        async with self._long_places:
            ended: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
            self._run_syncs([work], partial(_settle, ended))
            [error] = await ended
        has_more = self._beside.pop(owner)
        owner.end_sync(work, error)
        if has_more:
            self.request(owner)


class SyncThreads:
    """Implements ``RunSyncs`` with a few threads of its own, which exist as long as the process.

    The disk does several syncs at once in little more than the time of one, and handing work to a plain
    thread and back takes a third of the time that an executor takes.
    """

    def __init__(self, count: int = SYNC_THREADS) -> None:
        self._waiting: SimpleQueue[tuple[_Round, int]] = SimpleQueue()
        for _ in range(count):
            threading.Thread(target=self._work, name="sync", daemon=True).start()

    def __call__(self, syncs: Sequence[DiskWork], ended: RoundEnded) -> None:
        """Give the syncs of a whole round to the threads; the round ends when its last sync has run."""
        this_round = _Round(syncs, ended)
        for number in range(len(syncs)):
            self._waiting.put((this_round, number))

    def _work(self) -> None:
        while True:
            this_round, number = self._waiting.get()
            this_round.run(number)
            del this_round  # a waiting thread must not keep a log in memory


class _Round:
    """One round of syncs on several threads; the last sync to finish reports all errors to the loop."""

    __slots__ = ("_broken", "_ended", "_errors", "_left", "_lock", "_loop", "_syncs")

    def __init__(self, syncs: Sequence[DiskWork], ended: RoundEnded) -> None:
        self._syncs = syncs
        self._ended = ended
        self._errors: Errors = [None] * len(syncs)
        self._broken: BaseException | None = None
        self._left = len(syncs)
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()

    def run(self, number: int) -> None:
        """Run sync ``number`` of the round; if it is the last to finish, report to the loop."""
        try:
            self._syncs[number].run()
        except OSError as error:
            self._errors[number] = error
        except BaseException as error:
            self._errors[number] = exhaustion(error)  # its owner is opened again, from the disk
            self._broken = self._broken if self._errors[number] else error
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            try:  # noqa: SIM105 - three calls for each sync
                self._loop.call_soon_threadsafe(self._ended, self._broken or self._errors)
            except RuntimeError:
                pass  # the loop has ended, and no request waits


def _settle(future: asyncio.Future[Errors], result: Errors | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
