"""The lag of many groups for metrics, measured in the background: a scrape only reads the newest samples.

Decides: when ends of partitions are asked for again, and which answers stay valid. One round asks once for
the ends of each partition, however many groups read it, and for the first record of a group only once the
one before is consumed or deleted, since the time of a record never changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from groups.backlog import Backlog, backlog
from groups.offsets import gathered
from groups.ports import Extent, Topics
from groups.records import CommittedOffset
from raftlog.clock import Clock
from raftlog.errors import RaftlogError

SAMPLE_S: Final = 5.0  # samples that are younger are not measured again

Row = tuple[str, str, int]  # group, topic and partition
Found = TypeVar("Found")
_log = logging.getLogger("raftlog.groups")


@dataclass(frozen=True, slots=True)
class LagSample:
    """One measurement."""

    offset: int
    topic_id: str
    backlog: Backlog


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
        left, offset = sample.backlog, committed.offset
        return left.records(offset), left.age_s(offset, self._clock.wall_ms())

    async def measure(self, rows: Sequence[tuple[Row, CommittedOffset]]) -> None:
        """One round. Samples of other rows are forgotten."""
        known = [(row, committed) for row, committed in rows if self._is_current(row, committed)]
        targets = list(dict.fromkeys(row[1:] for row, _ in known))
        extents = dict(zip(targets, await gathered(self._extent(*target) for target in targets), strict=True))
        found = await gathered(self._sample(row, committed, extents[row[1:]]) for row, committed in known)
        pairs = zip(known, found, strict=True)
        self._samples = {row: sample for (row, _), sample in pairs if sample is not None}

    def _is_current(self, row: Row, committed: CommittedOffset) -> bool:
        return self._topics.topic_id(row[1]) == committed.topic_id

    async def _extent(self, topic: str, partition: int) -> Extent | None:
        return await _known(self._topics.extent(topic, partition), f"the end of {topic}/{partition}")

    async def _sample(self, row: Row, committed: CommittedOffset, extent: Extent | None) -> LagSample | None:
        if extent is None:
            return None
        sample, (group, topic, partition) = self._samples.get(row), row
        before = sample.backlog if sample is not None and _is_same(sample, committed) else None
        measured = backlog(self._topics, topic, partition, committed.offset, extent, before)
        found = await _known(measured, f"the lag of group {group} in {topic}/{partition}")
        return None if found is None else LagSample(committed.offset, committed.topic_id, found)


async def _known(measured: Awaitable[Found], what: str) -> Found | None:
    """The result; None where it is not known now, also after an error that nobody has thought of."""
    try:
        return await measured
    except RaftlogError:
        return None
    except Exception:
        _log.exception("%s is not known", what)
        return None


def _is_same(before: LagSample, committed: CommittedOffset) -> bool:
    """An offset that was set back has other records behind it."""
    return before.offset <= committed.offset and before.topic_id == committed.topic_id
