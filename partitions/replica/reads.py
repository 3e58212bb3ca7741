"""Reads of a partition, by default at its leader.

Decides: which records a fetch returns, how long it waits, and when an offset is out of range. Leaves to
others: the right to serve (``serving``, and ``bounded_reads`` for followers), waking (``fetch_waiters``),
positions (``positions``), which reads run in a thread (``raftlog.node.reading``).

A fetch returns only whole batches below the high watermark, which never change. So a deposed leader that has
not noticed yet shows an old end, but never wrong records. A newer leader may have served the reader up to a
higher offset, so a leader reports "out of range" above the end only after proof of leadership. A new leader
serves once it knows the log start of earlier leaders, and refuses all offsets that earlier leaders refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from partitions.replica.fetch_waiters import FetchWaiters
from partitions.replica.machine import PartitionMachine
from partitions.replica.positions import (
    NO_ABORTED,
    ONE_BATCH,
    NewestRecords,
    at_time,
    needs_high_watermark,
    timestamp_at,
)
from partitions.replica.selection import STEP_BYTES, Selection
from partitions.replica.serving import CONFIRM_S, RETRY_AFTER_MS
from partitions.values import AtTime, FetchRequest, FetchResult, LastRecords, Position, Start, UnreadBatches
from raftlog.errors import LogCorrupt, NoLeader, NotLeader, OffsetOutOfRange, RaftlogError
from raftlog.exhaustion import exhaustion, refuse_exhausted
from raftlog.node.deadline import deadline_in
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.reading import (
    CANNOT_READ,
    READ_FAILURES,
    LogBytes,
    LogChanged,
    read_batches,
    read_part,
    read_recent,
)
from raftlog.records.aborted import AbortedRanges
from raftlog.records.batch import HEADER_BYTES
from raftlog.records.compaction import ending_at
from raftlog.records.tags import TagSelection
from raftlog.types import Index, Offset, TopicPartition

Found = TypeVar("Found")
MIN_OFFSET_S: Final = 0.5  # minimum wait of a read for its ``min_offset``


class ReadRight(Protocol):
    """The right of a replica to serve a read. ``Serving`` is the right of a leader."""

    @property
    def target(self) -> TopicPartition:
        """The partition."""

    @property
    def group(self) -> RaftGroup[None]:
        """The Raft group of the replica."""

    @property
    def is_ready(self) -> bool:
        """Whether the replica has all entries ever committed, so that it may report an offset as out of
        range.
        """

    @property
    def knows_start(self) -> bool:
        """Whether the replica knows the newest log start."""

    def check_serves(self) -> RaftGroup[None]:
        """Return the Raft group, or raise an error if the right to serve has ended."""

    async def ready(self, deadline: float) -> None:
        """Return once the replica has all entries that were committed before this call."""

    async def confirm(self) -> Index:
        """Prove that the replica leads; return an index that covers all earlier acknowledgements."""

    def damaged(self, error: LogCorrupt | OSError) -> NotLeader:
        """Stop the replica, because its log could not be read; return the error for its readers."""


class Reads:
    """The reads of one replica."""

    def __init__(
        self, serving: ReadRight, machine: PartitionMachine, waiters: FetchWaiters | None = None
    ) -> None:
        self.waiters = FetchWaiters() if waiters is None else waiters
        self._serving = serving
        self._transactions = machine.transactions
        self._replicated_start = machine.log_start

    @property
    def high_watermark(self) -> Offset:
        """One past the newest record that this replica knows to be committed and can read."""
        return self._ends(committed_only=False)[0]

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which all transactions have ended, as far as this replica has applied its log."""
        return self._ends(committed_only=True)[1]

    @property
    def log_start_offset(self) -> Offset:
        """The oldest offset that readers may read; it never falls, even across changes of leader.

        The local log may begin at a lower offset, at the start of a segment. It begins above the replicated
        log start only if an earlier release, which did not replicate the log start, has deleted records.
        """
        return Offset(max(self._serving.group.log.first_index, self._replicated_start.offset))

    def _ends(self, *, committed_only: bool) -> tuple[Offset, Offset, Index]:
        """The high watermark, the last stable offset, and the newest index that a reader may see."""
        group = self._serving.group
        # A leader with a full disk may commit entries that only its followers could write.
        newest = min(group.commit_index, group.log.last_index)
        applied = min(newest, group.applied_index)
        stable = Offset(self._transactions.last_stable_offset(applied + 1))
        return Offset(newest + 1), stable, Index(stable - 1) if committed_only else newest

    def _visible(self, committed_only: bool) -> Index:
        return self._ends(committed_only=committed_only)[2]

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Read whole committed batches from a position on; with ``wait_ms`` wait for ``bytes_min`` bytes.

        Raises ``OffsetOutOfRange`` with the valid range, ``NoLeader`` if the offset may exist but this
        replica does not know it to be committed, ``TopicNotFound``, and ``NotLeader``, also if leadership is
        lost during the wait.
        """
        deadline = deadline_in(request.wait_ms)
        serving = self._serving
        serving.check_serves()
        if needs_high_watermark(request.position):
            await serving.ready(deadline)
        if request.min_offset and request.min_offset > self.high_watermark:
            await self._reached(request.min_offset, deadline)
        position = request.position
        offset = Offset(position) if isinstance(position, int) else await self._found(position, request)
        while True:
            try:
                return await self._fetched(offset, request, deadline)
            except OffsetOutOfRange:
                start = self._start(request.committed_only)
                if isinstance(request.position, int) or start <= offset:
                    raise
                offset = start  # retention has deleted the record that the position stood for

    async def _found(self, position: Position, request: FetchRequest) -> Offset:
        offset, _ = await self._find(position, request.committed_only)
        return offset

    async def _fetched(self, offset: Offset, request: FetchRequest, deadline: float) -> FetchResult:
        if (wanted := request.selection) is not None:
            return await self._selected(offset, request, wanted, deadline)
        if request.wait_ms > 0:
            try:
                async with asyncio.timeout_at(deadline):
                    goal = min(request.bytes_min, request.bytes_max)
                    await self._gathered(offset, goal, request.committed_only)
            except TimeoutError:
                pass  # return the batches that there are
        found, high_watermark, stable = await self._read(
            offset, request.bytes_max, request.committed_only, in_pieces=request.in_pieces
        )
        if offset > high_watermark:
            raise await self._above(offset)
        data = b"" if found is None else found.data
        rest = None if found is None else found.rest
        if request.committed_only and rest is None:
            data = self._transactions.without_aborted(data)
        next_offset = offset if found is None else Offset(found.last + 1)
        return self._result(offset, data, next_offset, high_watermark, stable, request.committed_only, rest)

    async def _selected(
        self, offset: Offset, request: FetchRequest, wanted: TagSelection, deadline: float
    ) -> FetchResult:
        """Read the records with the wanted tags. Only bytes of these records count for ``bytes_min``."""
        committed_only = request.committed_only
        goal = min(request.bytes_min, request.bytes_max)
        selection = Selection(offset, wanted, request.bytes_max)
        while True:
            found, high_watermark, stable = await self._read(
                selection.next_offset, STEP_BYTES, committed_only
            )
            if found is not None:
                data = self._transactions.without_aborted(found.data) if committed_only else found.data
                selection.add(data, found.last)
                if selection.is_complete:
                    break
                await asyncio.sleep(0)
            elif selection.size_bytes >= goal or request.wait_ms <= 0 or self._is_beyond_all(offset):
                break
            else:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._newer(selection.next_offset, committed_only)
                except TimeoutError:
                    break
        if offset > high_watermark:
            raise await self._above(offset)
        return self._result(
            offset, selection.data, selection.next_offset, high_watermark, stable, committed_only
        )

    def _result(
        self,
        offset: Offset,
        data: bytes | memoryview,
        next_offset: Offset,
        high_watermark: Offset,
        stable: Offset,
        committed_only: bool,
        rest: UnreadBatches | None = None,
    ) -> FetchResult:
        group = self._serving.group
        return FetchResult(
            offset=offset,
            data=data,
            next_offset=next_offset,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            leader_epoch=group.term,
            last_stable_offset=stable,
            end=stable if committed_only else high_watermark,
            served_by=group.node_id,
            rest=rest,
        )

    async def offset_at(
        self, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """The offset of a position, and the timestamp of the record there (None without a record);
        linearizable.

        With ``committed_only`` the end of the partition is the last stable offset, so that a reader that
        begins there gets the records of open transactions once they are committed. Raises ``NotLeader``,
        ``NoLeader``, ``TopicNotFound``.
        """
        serving = self._serving
        serving.check_serves()
        await serving.confirm()
        offset, visible = await self._find(position, committed_only)

        async def look() -> int | None:
            log = serving.group.log
            if not self._start(committed_only) <= offset <= visible:
                return None
            part, aborted = log.part(Index(offset), ONE_BATCH), self._aborted(committed_only)
            return await read_part(log, part, lambda part: timestamp_at(part, visible, offset, aborted))

        return offset, await self._from_log(look)

    async def _find(self, position: Position, committed_only: bool) -> tuple[Offset, Index]:
        """The offset of a position among the visible records, and the newest visible index.

        An offset as position is returned unchanged; any other result is at or above the log start.
        """

        if isinstance(position, int):
            return Offset(position), self._visible(committed_only)

        async def look() -> tuple[Offset, Index]:
            log, visible = self._serving.group.log, self._visible(committed_only)
            match position:
                case AtTime(timestamp_ms):
                    return await self._at_time(timestamp_ms, visible, committed_only), visible
                case LastRecords(count):
                    return await self._newest(count, visible, committed_only), visible
                case Start.EARLIEST:
                    return Offset(log.first_index), visible
                case Start.LATEST:
                    return Offset(visible + 1), visible

        offset, visible = await self._from_log(look)
        return max(offset, self._start(committed_only)), visible

    async def _at_time(self, timestamp_ms: int, visible: Index, committed_only: bool) -> Offset:
        """The offset of the first visible record at or after a time, or one past ``visible``.

        The log is searched in parts, each with a separate read.
        """
        log, first = self._serving.group.log, Index(self._start(committed_only))
        aborted = self._aborted(committed_only)
        while (part := log.part_at_time(timestamp_ms, first)) is not None:
            search = partial(at_time, first=first, last=visible, timestamp_ms=timestamp_ms, aborted=aborted)
            found = await read_part(log, part, search)
            if found is not None:
                return found
            first = Index(part.last_index + 1)
        return Offset(visible + 1)

    async def _newest(self, count: int, visible: Index, committed_only: bool) -> Offset:
        """The offset of the first of the newest ``count`` visible records; may be below the log start."""
        log, search = self._serving.group.log, NewestRecords(count, visible, self._aborted(committed_only))
        while not search.is_complete and search.last >= self._start(committed_only):
            await read_part(log, log.part(search.last, ONE_BATCH), search.look)
        return search.offset

    def _aborted(self, committed_only: bool) -> AbortedRanges:
        """The ranges of aborted transactions, if the reader does not see their records; else no ranges."""
        return self._transactions.aborted() if committed_only else NO_ABORTED

    async def _read(
        self, offset: Offset, bytes_max: int, committed_only: bool, *, in_pieces: bool = False
    ) -> tuple[LogBytes | None, Offset, Offset]:
        """Read visible batches from ``offset`` on.

        Returns the batches (None if there are no batches), the high watermark and the last stable offset.
        """

        async def look() -> tuple[LogBytes | None, Offset, Offset]:
            log = self._serving.group.log
            high_watermark, stable, visible = self._ends(committed_only=committed_only)
            self._check_start(offset, committed_only)
            if offset > visible:
                return None, high_watermark, stable
            found = read_recent(log, Index(offset), visible, bytes_max=bytes_max)
            if found is None:
                is_as_stored = not (committed_only and self._transactions.has_aborted)
                found = await self._read_in_turn(
                    Index(offset), visible, bytes_max, in_pieces and is_as_stored
                )
            if found.last > visible:  # a gap batch whose end is not known to be committed yet
                found = LogBytes(visible, ending_at(found.data, visible))
            return found, high_watermark, stable

        found = await self._from_log(look)
        self._check_start(offset, committed_only)
        return found

    async def _read_in_turn(self, first: Index, last: Index, bytes_max: int, in_pieces: bool) -> LogBytes:
        """Read from the disk after other reads of the group: only few run at a time.

        The bytes stay in memory until the event loop sends them, so threads must not run far ahead of the
        loop.
        """
        group = self._serving.group
        removals = group.log.removals
        async with group.read_places:
            if group.stopped is not None or group.log.removals != removals:
                raise LogChanged
            found = await read_batches(group.log, first, last, bytes_max=bytes_max, in_pieces=in_pieces)
        if found.rest is not None:
            found.rest.on_failure = partial(self._rest_failed, group, removals)
        return found

    def _rest_failed(self, group: RaftGroup[None], removals: int, error: Exception) -> None:
        """Stop the group after a failed read, unless entries were removed or a resource is exhausted."""
        is_there = group.log.removals == removals and not group.log.is_changing
        if is_there and isinstance(error, LogCorrupt | OSError) and exhaustion(error) is None:
            group.stop(error)

    async def _from_log(self, look: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of ``look`` while this replica may serve.

        Repeat ``look`` if log or term changed meanwhile.
        """
        serving = self._serving
        while True:
            group = serving.check_serves()
            if not serving.knows_start:
                await serving.ready(asyncio.get_running_loop().time() + CONFIRM_S)
            term = group.term
            try:
                found = await look()
            except LogChanged:
                continue
            except READ_FAILURES as error:
                refuse_exhausted(error, CANNOT_READ)
                if isinstance(error, LogCorrupt | OSError):
                    raise serving.damaged(error) from error
                raise
            if serving.check_serves().term == term:  # in an equal term the known log start still holds
                return found

    async def _reached(self, min_offset: Offset, deadline: float) -> None:
        """Return once all records below ``min_offset`` are known to be committed; raise an error after the
        deadline.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(max(deadline, asyncio.get_running_loop().time() + MIN_OFFSET_S)):
                while min_offset > self.high_watermark and not self._is_beyond_all(min_offset):
                    await self.waiters.wait(Index(min_offset - 1))
                    self._serving.check_serves()
        if min_offset > self.high_watermark:
            raise await self._above(min_offset, "min_offset")

    async def _gathered(self, offset: Offset, goal: int, committed_only: bool) -> None:
        """Return once ``goal`` bytes from ``offset`` on are committed, or if waiting cannot help.

        Each wake-up reads new batches only, so the wait costs at most a second read of the result.
        """
        counted, following = 0, offset
        while counted < goal:
            self._serving.check_serves()
            visible = self._visible(committed_only)
            if goal - counted <= HEADER_BYTES and self.log_start_offset <= following <= visible:
                return  # every batch has at least these bytes
            found, *_ = await self._read(following, goal - counted, committed_only)
            if found is not None:
                counted += len(found.data)
                following = Offset(found.last + 1)
            elif self._is_beyond_all(following):
                return
            else:
                await self._newer(following, committed_only)

    def _is_beyond_all(self, offset: Offset) -> bool:
        """Whether the offset is above all entries ever appended, so that waiting cannot help."""
        return self._serving.is_ready and offset > self._serving.group.last_index + 1

    async def _newer(self, following: Offset, committed_only: bool) -> None:
        """Return once there may be a record at ``following``, which had no visible record before."""
        group = self._serving.group
        if committed_only:
            await self.waiters.wait(Index(group.applied_index + 1))  # perhaps the end of a transaction
        elif following <= self.high_watermark:
            await self.waiters.wait(Index(following))
        else:
            await self.waiters.wait(Index(group.commit_index + 1))

    async def _above(self, offset: Offset, name: str = "offset") -> RaftlogError:
        """The error for a reader whose offset is above the high watermark."""
        group = self._serving.group
        if self._serving.is_ready and offset > group.last_index + 1:
            await self._serving.confirm()
            if offset > group.last_index + 1:
                return self._out_of_range(offset, self.log_start_offset, name)
        return NoLeader(
            f"{name} {offset} of {self._serving.target} is not known to be committed yet; retry",
            retry_after_ms=RETRY_AFTER_MS,
        )

    def _check_start(self, offset: Offset, committed_only: bool) -> None:
        """Raise an error for an offset below the log start; with ``committed_only`` also below forgotten
        aborted ranges.
        """
        if offset < (start := self._start(committed_only)):
            raise self._out_of_range(offset, start)

    def _start(self, committed_only: bool) -> Offset:
        first = self.log_start_offset
        return Offset(max(first, self._transactions.known_from)) if committed_only else first

    def _out_of_range(self, offset: Offset, start: Offset, name: str = "offset") -> OffsetOutOfRange:
        end = self.high_watermark
        return OffsetOutOfRange(
            f"{name} {offset} of {self._serving.target} does not exist; valid are {start} to {end}",
            start=start,
            end=end,
        )
