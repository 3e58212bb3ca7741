"""Reads ahead in the partitions of a member; each partition has a share of one bound in bytes.

Decides: which partition is fetched next, and from which partition records are handed out next. Leaves to
others: the set of partitions, and their first positions (``core``).

Half of the bound is shared by all partitions, which wait for records at the same time. The other half is for
partitions that are behind: a few of them at a time are read in large chunks, since small chunks cost more per
record.
A new partition counts as behind, and is first read without waiting.

Chunks are handed out whole, in the order in which they arrived: while one chunk is handed out, the partitions
whose chunks were handed out before are read again. So no partition waits for more than one chunk of each
other partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from raftlog.client.logs import client_logger
from raftlog.client.messages import Message
from raftlog.client.options import Duration
from raftlog.client.partition import AsyncPartition
from raftlog.errors import OffsetOutOfRange, PartitionNotFound, RaftlogError, TopicNotFound
from raftlog.records.tags import TagSelection, tag_fields
from raftlog.types import TopicPartition
from raftlog.wire.lag import records_left

WAIT = "10s"
CHUNK_BYTES_MIN = 64 << 10
CHUNK_BYTES_MAX = 4 << 20  # brokers may be configured to send less
CATCH_UP_BYTES = 1 << 20  # chunk of a partition that is behind, if half of the bound is larger
PAUSE_S = 0.2
LOST = "%s/%d no longer has offset %d: reading continues at offset %d; see the option reset"
_log = client_logger()

OpenPartition = Callable[[TopicPartition], AsyncPartition]


@dataclass(slots=True, eq=False)
class _Source:
    """One partition. ``position`` is the next offset to fetch."""

    partition: AsyncPartition
    position: int
    task: asyncio.Task[None] | None = None
    buffer: list[Message] = field(default_factory=list)
    drained: asyncio.Event = field(default_factory=asyncio.Event)  # drained or paused: wakes its reader
    start: int = 0  # the log start of the newest response
    end: int = -1  # its high watermark
    is_paused: bool = False

    @property
    def next_offset(self) -> int:
        """The next offset to hand out."""
        return self.buffer[0].offset if self.buffer else self.position

    async def wait_drained(self) -> None:
        """Return once all fetched records of the partition have been handed out."""
        while self.buffer:
            await self._wait()

    async def wait_drained_or_paused(self) -> None:
        """Return once all fetched records of the partition are handed out, or the partition is paused."""
        while self.buffer and not self.is_paused:
            await self._wait()

    async def _wait(self) -> None:
        self.drained.clear()
        await self.drained.wait()


class Fetching:
    """The partitions that a member reads, initially none. All calls are on the client's loop."""

    def __init__(
        self,
        open_partition: OpenPartition,
        prefetch_bytes: int,
        *,
        linger_s: float = 0.0,
        awaits_topics: bool = False,
        awaits_rebalance: bool = False,
        selection: TagSelection | None = None,
        fails: bool = False,
    ) -> None:
        """``fails``: a position whose record was deleted is an error; else deleted records are skipped."""
        self._open = open_partition
        self._prefetch_bytes = prefetch_bytes
        self._linger_s = linger_s
        self._lists = tag_fields(selection)
        self._fails = fails
        self._awaits_topics = awaits_topics  # topics may be new, or deleted by now
        self._awaits_rebalance = awaits_rebalance  # a rebalance follows when a partition is removed
        self._sources: dict[TopicPartition, _Source] = {}
        self._ready: deque[_Source] = deque()  # partitions with records, in order of arrival
        self._changed = asyncio.Event()
        self._catch_up_bytes = min(CATCH_UP_BYTES, max(CHUNK_BYTES_MIN, prefetch_bytes // 2))
        self._catching_up = asyncio.Semaphore(max(1, prefetch_bytes // 2 // self._catch_up_bytes))
        self.failures: list[tuple[_Source | None, Exception]] = []  # each is raised once

    async def start(self, positions: dict[TopicPartition, int]) -> None:
        """From now on read these partitions and no other partitions."""
        await self.stop()
        for target, position in positions.items():
            self._sources[target] = _Source(self._open(target), position)
        for source in self._sources.values():
            source.task = asyncio.create_task(self._read(source))

    async def stop(self) -> None:
        """Forget all partitions, their fetched records, and all failures."""
        tasks = [source.task for source in self._sources.values() if source.task is not None]
        self._sources = {}
        self._ready.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.failures.clear()

    def fail(self, error: Exception, source: _Source | None = None) -> None:
        """Let the next take raise ``error``, unless a seek in its partition comes first."""
        self.failures.append((source, error))
        self._changed.set()

    async def seek(self, target: TopicPartition, position: int) -> None:
        """Continue at another position of a partition.

        Raises ``KeyError`` if this member does not read the partition.
        """
        before = self._sources[target]
        buffers = {each: source for each, source in self._sources.items() if each != target}
        if before.task is not None:
            before.task.cancel()
        if before in self._ready:
            self._ready.remove(before)
        self.failures = [each for each in self.failures if each[0] is not before]
        source = _Source(
            before.partition, position, start=before.start, end=before.end, is_paused=before.is_paused
        )
        self._sources = {**buffers, target: source}
        source.task = asyncio.create_task(self._read(source))

    def pause(self, target: TopicPartition, is_paused: bool) -> None:
        """Pause or resume handing out records of a partition."""
        source = self._sources[target]
        source.is_paused = is_paused
        source.drained.set()
        self._changed.set()

    def is_paused(self, target: TopicPartition) -> bool:
        """Whether a partition is paused: none of its records are handed out."""
        source = self._sources.get(target)
        return source is not None and source.is_paused

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The lag in records, by partition, at the last response; without partitions that had no response."""
        return {
            target: records_left(source.next_offset, source.start, source.end)
            for target, source in self._sources.items()
            if source.end >= 0
        }

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, by partition."""
        return {target: source.next_offset for target, source in self._sources.items()}

    async def take(self, count_max: int, wait_s: float) -> list[Message]:
        """Records of one partition, in order; an empty list if no record comes in time.

        If errors have ended the reading of partitions, each call raises one of these errors.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            if self.failures:
                raise self.failures.pop(0)[1]
            source = next((each for each in self._ready if not each.is_paused), None)
            if source is not None:
                taken, source.buffer = source.buffer[:count_max], source.buffer[count_max:]
                if not source.buffer:
                    self._ready.remove(source)
                    source.drained.set()
                return taken
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return []

    async def _read(self, source: _Source) -> None:
        share = self._prefetch_bytes // 2 // max(1, len(self._sources))
        share = min(CHUNK_BYTES_MAX, max(CHUNK_BYTES_MIN, share))
        is_behind = True  # until a response says otherwise
        try:
            while True:
                await source.wait_drained()
                if is_behind:
                    async with self._catching_up:
                        is_behind = await self._read_once(source, max(share, self._catch_up_bytes), wait=0)
                        await source.wait_drained_or_paused()
                else:
                    if self._linger_s:
                        await asyncio.sleep(self._linger_s)  # more records gather meanwhile
                    is_behind = await self._read_once(source, share, wait=WAIT)
        except Exception as error:  # also an unexpected error: the partition is read no longer
            self.fail(error, source)

    async def _read_once(self, source: _Source, bytes_max: int, *, wait: Duration) -> bool:
        """Read a chunk. True if more records can be read now. Raises only permanent errors."""
        try:
            chunk = await source.partition.read(
                source.position, max_bytes=bytes_max, wait=wait, **self._lists
            )
        except OffsetOutOfRange as error:
            if self._fails:
                raise
            nearest = error.nearest(source.position)
            _log.warning(LOST, source.partition.topic, source.partition.number, source.position, nearest)
            source.position = nearest
            return True
        except RaftlogError as error:
            may_come = self._awaits_topics and isinstance(error, TopicNotFound)
            may_come = may_come or (self._awaits_rebalance and isinstance(error, PartitionNotFound))
            if not (error.retryable or may_come):
                raise
            await asyncio.sleep(PAUSE_S)
            return False
        source.position = chunk.next_offset
        source.start, source.end = chunk.log_start_offset, chunk.high_watermark
        source.buffer = chunk.messages
        if chunk.messages:
            self._ready.append(source)
            self._changed.set()
        return not chunk.is_up_to_date
