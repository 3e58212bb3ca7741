"""Reading a partition at its leader.

Decides: what a fetch may see, how long it waits, and when an offset is out of range. Leaves to
others: the right to serve (``serving``), waking (``fetch_waiters``), positions (``positions``).

Only whole batches below the high watermark are shown, and those never change. A deposed leader that
has not noticed yet therefore shows an old end, never other records; and since a reader may have
been further at a newer leader, "out of range" above the end is said only after proof of leadership.
"""

from __future__ import annotations

import asyncio

from partitions.fetch_waiters import FetchWaiters
from partitions.positions import find, needs_high_watermark, timestamp_at
from partitions.serving import RETRY_AFTER_MS, Serving
from partitions.values import FetchRequest, FetchResult, Position
from raftlog.errors import NoLeader, OffsetOutOfRange, RaftlogError
from raftlog.storage.log_storage import LogRange
from raftlog.types import Index, Offset


class Reads:
    """The reads of one replica."""

    def __init__(self, serving: Serving) -> None:
        self.waiters = FetchWaiters()
        self._serving = serving

    @property
    def high_watermark(self) -> Offset:
        """One past the newest record that is known to be committed and can be read here."""
        return Offset(self._visible_index + 1)

    @property
    def _visible_index(self) -> Index:
        """A leader whose disk is full may commit, on its followers' disks, what it cannot write itself."""
        group = self._serving.group
        return min(group.commit_index, group.log.last_index)

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Whole committed batches from a position on; with ``wait_ms`` it waits for ``bytes_min``.

        Raises ``OffsetOutOfRange`` with the valid range, ``NoLeader`` when the offset may exist and is
        not known here to be committed, ``UnknownTopic``, and ``NotLeader``, also when leadership is lost
        while waiting.
        """
        deadline = asyncio.get_running_loop().time() + max(request.wait_ms, 0) / 1000
        serving = self._serving
        serving.check_leads()
        if needs_high_watermark(request.position):
            await serving.ready(deadline)
        group = serving.group
        with serving.healthy_log():
            offset = find(group.log, self._visible_index, request.position)
        goal = min(request.bytes_min, request.bytes_max)
        found = self._visible(offset, request.bytes_max)
        if request.wait_ms > 0 and (found is None or _size_of(found) < goal):
            try:
                async with asyncio.timeout_at(deadline):
                    await self._gathered(offset, goal)
            except TimeoutError:
                pass  # what is there by now is the answer
            serving.check_leads()
            found = self._visible(offset, request.bytes_max)
        if offset > self.high_watermark:
            raise await self._above(offset)
        return self._result(offset, found)

    async def offset_at(self, position: Position) -> tuple[Offset, int | None]:
        """The offset of a position and the timestamp of its record, if there is one; linearizable.

        Raises ``NotLeader``, ``NoLeader``, ``UnknownTopic``.
        """
        serving = self._serving
        serving.check_leads()
        await serving.confirm()
        group = serving.group
        with serving.healthy_log():
            offset = find(group.log, self._visible_index, position)
            return offset, timestamp_at(group.log, self._visible_index, offset)

    def _visible(self, offset: Offset, bytes_max: int) -> LogRange | None:
        """The committed batches from ``offset`` on, or None when there are none."""
        group = self._serving.group
        visible = self._visible_index
        if offset < group.log.first_index:
            raise self._out_of_range(offset)
        if offset > visible:
            return None
        with self._serving.healthy_log():
            return group.log.read(Index(offset), visible, bytes_max=bytes_max)

    async def _gathered(self, offset: Offset, goal: int) -> None:
        """Return once ``goal`` bytes from ``offset`` on are committed, or when waiting is of no use.

        Each wake counts only what is new, so that waiting for much costs no more than reading it once.
        """
        group = self._serving.group
        counted, following = 0, offset
        while counted < goal:
            self._serving.check_leads()
            found = self._visible(following, goal - counted)
            if found is not None:
                counted += _size_of(found)
                following = Offset(found.last + 1)
            elif following <= self.high_watermark:
                await self.waiters.wait(Index(following))
            elif self._serving.is_ready and following > group.last_index + 1:
                return  # beyond everything that was ever appended
            else:
                await self.waiters.wait(Index(group.commit_index + 1))

    def _result(self, offset: Offset, found: LogRange | None) -> FetchResult:
        group = self._serving.group
        with self._serving.healthy_log():
            return FetchResult(
                offset=offset,
                data=b"" if found is None else found.read(),
                next_offset=offset if found is None else Offset(found.last + 1),
                log_start_offset=Offset(group.log.first_index),
                high_watermark=self.high_watermark,
                leader_epoch=group.term,
            )

    async def _above(self, offset: Offset) -> RaftlogError:
        """What to tell a reader above the high watermark."""
        group = self._serving.group
        if self._serving.is_ready and offset > group.last_index + 1:
            await self._serving.confirm()
            if offset > group.last_index + 1:
                return self._out_of_range(offset)
        return NoLeader(
            f"offset {offset} of {self._serving.target} is not known to be committed yet; retry",
            retry_after_ms=RETRY_AFTER_MS,
        )

    def _out_of_range(self, offset: Offset) -> OffsetOutOfRange:
        start, end = self._serving.group.log.first_index, self.high_watermark
        return OffsetOutOfRange(
            f"offset {offset} of {self._serving.target} is not there; valid are {start} to {end}",
            start=start,
            end=end,
        )


def _size_of(found: LogRange) -> int:
    return sum(run.length for run in found.runs)
