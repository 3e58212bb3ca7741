"""Measures the lag of many groups in the background, so that a metrics scrape only reads the newest samples.

Decides: when the ends of partitions are read again, and which samples stay valid. One round reads the ends of
each partition once, however many groups consume it. A round looks for the first record of a group only after
the previous first record was consumed or deleted, since the timestamp of a record never changes.
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

SAMPLE_S: Final = 5.0  # minimum time between two rounds

Row = tuple[str, str, int]  # group, topic and partition
Found = TypeVar("Found")
_log = logging.getLogger("raftlog.groups")


@dataclass(frozen=True, slots=True)
class LagSample:
    """One measurement of a group's lag in a partition."""

    offset: int
    topic_id: str
    backlog: Backlog


class LagSamples:
    """The lag samples of one broker; all on the event loop's thread."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._samples: dict[Row, LagSample] = {}
        self._round: asyncio.Task[None] | None = None
        self._began_s = float("-inf")

    def want(self, rows: Sequence[tuple[Row, CommittedOffset]]) -> asyncio.Task[None] | None:
        """Start a round for these rows and return its task.

        Returns None if a round is running or began less than ``SAMPLE_S`` ago.
        """
        now_s = self._clock.monotonic()
        is_idle = self._round is None or self._round.done()
        if not is_idle or now_s - self._began_s < SAMPLE_S:
            return None
        self._began_s = now_s
        self._round = asyncio.get_running_loop().create_task(self.measure(rows))
        return self._round

    def lag_of(self, row: Row, committed: CommittedOffset) -> tuple[int, float] | None:
        """The lag in records and in seconds; None without a sample, as for a partition without leader."""
        sample = self._samples.get(row)
        if sample is None or sample.topic_id != committed.topic_id:
            return None
        left, offset = sample.backlog, committed.offset
        return left.records(offset), left.age_s(offset, self._clock.wall_ms())

    async def measure(self, rows: Sequence[tuple[Row, CommittedOffset]]) -> None:
        """Measure the lags of these rows once, and forget the samples of all other rows."""
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
    """The result of ``measured``, or None after any error; unexpected errors are logged."""
    try:
        return await measured
    except RaftlogError:
        return None
    except Exception:
        _log.exception("cannot determine %s", what)
        return None


def _is_same(before: LagSample, committed: CommittedOffset) -> bool:
    """Whether an earlier sample is still usable: the committed offset has not been lowered since."""
    return before.offset <= committed.offset and before.topic_id == committed.topic_id
