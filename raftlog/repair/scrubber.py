"""Reads all segments and small files of open replicas, again and again, to find damage early.

Decides: in which order files are read, how fast, and which values are compared. Leaves to others: the
treatment of a damaged replica (it is stopped, and ``scheduler`` repairs it).

At most ``bytes_per_s`` are read, by one thread, and a replica begins ``REPLICA_S`` after the previous
replica: so thousands of idle replicas cost no more than a few. The next cycle begins as soon as the last one
has ended, but at least ``CYCLE_S_MIN`` after the beginning of the last one. Of the active segment, the part
is read that was durable when the segment's turn came. Indexes, which can be built again at any time, are
read, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from raftlog.clock import Clock
from raftlog.errors import LogCorrupt
from raftlog.exhaustion import exhaustion
from raftlog.node.blocking import RunBlocking
from raftlog.repair.scrubbing import (
    ScrubRange,
    check_index,
    check_range,
    check_small_files,
    scrub_ranges,
)
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.log_storage import LogChange
from raftlog.storage.segmented_log import SegmentedLog

_log = logging.getLogger("raftlog.repair")

CYCLE_S_MIN: Final = 60.0
REPLICA_S: Final = 0.2
STEP_BYTES: Final = 1 << 20  # bytes read between two pauses


class Stoppable(Protocol):
    """The part of ``RaftGroup`` that the scrubber needs."""

    @property
    def stopped(self) -> BaseException | None:
        """The reason why the replica has stopped; None while it runs."""

    def stop(self, error: BaseException) -> None:
        """Stop the replica: it no longer votes or serves."""

    async def change_log(self, begin: Callable[[], LogChange | None]) -> None:
        """Run a change of the log when no other work uses the log's disk."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """One open replica whose files the scrubber reads."""

    group: Stoppable
    log: SegmentedLog


@dataclass(slots=True)
class ScrubCounts:
    """Counters of the scrubber, for metrics."""

    bytes_read: int = 0
    damages_found: int = 0
    last_cycle_ended_ms: int = 0  # 0 before the end of the first cycle


@dataclass(slots=True)
class Scrubber:
    """Reads the files of one broker's replicas. ``replicas`` returns the replicas that are open now."""

    filesystem: Filesystem
    clock: Clock
    run_blocking: RunBlocking
    replicas: Callable[[], Iterable[Scrubbed]]
    bytes_per_s: int
    counts: ScrubCounts = field(default_factory=ScrubCounts)

    async def run(self) -> None:
        """Run cycle after cycle until cancelled. With a rate of 0, return at once."""
        while self.bytes_per_s:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.sleep(CYCLE_S_MIN / 2)  # a starting broker has more urgent work
            await self.cycle()
            await asyncio.sleep(max(0.0, began + CYCLE_S_MIN - loop.time()))

    async def cycle(self) -> None:
        """Check the files of every open replica once."""
        loop = asyncio.get_running_loop()
        for replica in list(self.replicas()):
            began = loop.time()
            try:
                await self._files(replica)
            except OSError as error:  # the files of the other replicas can still be read
                _log.error("%s cannot be scrubbed now: %s", replica.log.directory, error)
            await asyncio.sleep(max(0.0, began + REPLICA_S - loop.time()))
        self.counts.last_cycle_ended_ms = self.clock.wall_ms()

    async def _files(self, replica: Scrubbed) -> None:
        if replica.group.stopped is None:
            await self._small_files(replica)
        done = -1
        while replica.group.stopped is None and (part := _next(replica.log, done)) is not None:
            await self._segment(replica, part)
            done = part.first

    async def _segment(self, replica: Scrubbed, part: ScrubRange) -> None:
        place, removals = (0, part.first), replica.log.removals
        while place[0] < part.size:
            check = partial(check_range, self.filesystem, part, replica.log.terms(), place, STEP_BYTES)
            try:
                following = await self.run_blocking(check)
            except (LogCorrupt, OSError) as error:
                if exhaustion(error) is not None:
                    raise
                is_removed = replica.log.removals != removals or replica.log.is_changing
                if not is_removed and replica.group.stopped is None:
                    self._found(replica, error)
                return
            await self._pause(following[0] - place[0])
            place = following
        newest = next((each for each in replica.log.closed_segments if each.base == part.first), None)
        if newest is not None:
            index = partial(check_index, self.filesystem, part, newest)
            damaged = await self.run_blocking(index)
            if replica.log.removals == removals and not replica.log.is_changing:
                self._note(damaged)

    async def _small_files(self, replica: Scrubbed) -> None:
        directory = replica.log.directory
        check = partial(check_small_files, self.filesystem, directory, replica.log.first_index)
        try:
            states, others = await self.run_blocking(check)
        except OSError as error:
            if exhaustion(error) is not None or replica.group.stopped is not None:
                raise
            states, others = (), [f"{directory} ({error})"]  # unreadable files are replaced with new ones
        self._note(states)
        if others and replica.group.stopped is None:
            self._note(others)
            await replica.group.change_log(replica.log.rewrite_change)
        await self._pause(4096)

    def _note(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.counts.damages_found += 1
            _log.error("rebuilt %s: the file was damaged", path)

    def _found(self, replica: Scrubbed, error: Exception) -> None:
        self.counts.damages_found += 1
        replica.group.stop(error)

    async def _pause(self, size: int) -> None:
        self.counts.bytes_read += size
        await asyncio.sleep(size / self.bytes_per_s if self.bytes_per_s else 0)


def _next(log: SegmentedLog, done: int) -> ScrubRange | None:
    """The oldest segment that begins above ``done``; None without one.

    Retention may have removed segments meanwhile.
    """
    return next((part for part in scrub_ranges(log) if part.first > done), None)
