"""The lag of many groups for metrics, measured in the background: a scrape only reads the newest samples.

Decides: when ends of partitions are asked for again, and which answers stay valid. One round asks once for
the end of each partition, however many groups read it, and for the time of a record only after the committed
offset has moved, since the time of one record never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from groups.offsets import gathered
from groups.ports import Topics
from groups.records import CommittedOffset
from raftlog.clock import Clock
from raftlog.errors import RaftlogError

SAMPLE_S: Final = 5.0  # samples that are younger are not measured again

Row = tuple[str, str, int]  # group, topic and partition


@dataclass(frozen=True, slots=True)
class LagSample:
    """One measurement. ``time_ms`` is that of the first record that is not consumed; None without one."""

    offset: int
    topic_id: str
    lag: int
    time_ms: int | None


class LagSamples:
    """The samples of one broker; all on the event loop's thread."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._samples: dict[Row, LagSample] = {}
        self._round: asyncio.Task[None] | None = None
        self._began_s = float("-inf")

    def want(self, rows: Sequence[tuple[Row, CommittedOffset]]) -> asyncio.Task[None] | None:
        """Measure these in the background; None if that is under way or was done a moment ago."""
        now_s = self._clock.monotonic()
        is_idle = self._round is None or self._round.done()
        if not is_idle or now_s - self._began_s < SAMPLE_S:
            return None
        self._began_s = now_s
        self._round = asyncio.get_running_loop().create_task(self.measure(rows))
        return self._round

    def lag_of(self, row: Row, committed: CommittedOffset) -> tuple[int, float] | None:
        """Records and seconds; None before the first sample, and while the partition has no leader."""
        sample = self._samples.get(row)
        if sample is None or sample.topic_id != committed.topic_id:
            return None
        lag = max(0, sample.lag - max(0, committed.offset - sample.offset))
        if lag == 0 or sample.time_ms is None:
            return lag, 0.0
        return lag, max(0, self._clock.wall_ms() - sample.time_ms) / 1000

    async def measure(self, rows: Sequence[tuple[Row, CommittedOffset]]) -> None:
        """One round. Samples of other rows are forgotten."""
        known = [(row, committed) for row, committed in rows if self._is_current(row, committed)]
        targets = list(dict.fromkeys(row[1:] for row, _ in known))
        ends = dict(zip(targets, await gathered(self._end(*target) for target in targets), strict=True))
        found = await gathered(self._sample(row, committed, ends[row[1:]]) for row, committed in known)
        pairs = zip(known, found, strict=True)
        self._samples = {row: sample for (row, _), sample in pairs if sample is not None}

    def _is_current(self, row: Row, committed: CommittedOffset) -> bool:
        return self._topics.topic_id(row[1]) == committed.topic_id

    async def _end(self, topic: str, partition: int) -> int | None:
        try:
            return await self._topics.end(topic, partition)
        except RaftlogError:
            return None

    async def _sample(self, row: Row, committed: CommittedOffset, end: int | None) -> LagSample | None:
        if end is None:
            return None
        before, time_ms = self._samples.get(row), None
        lag = max(0, end - committed.offset)
        if lag:
            time_ms = before.time_ms if before is not None and _is_same(before, committed) else None
            if time_ms is None:
                try:
                    time_ms = await self._topics.time_of(row[1], row[2], committed.offset)
                except RaftlogError:
                    return None
        return LagSample(committed.offset, committed.topic_id, lag, time_ms)


def _is_same(before: LagSample, committed: CommittedOffset) -> bool:
    return before.offset == committed.offset and before.topic_id == committed.topic_id
