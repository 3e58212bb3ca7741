"""The lag of a group in one partition: the records that the group has not consumed.

Decides: which records count. Records below the log start do not count, nor control records and gaps of
compacted records before the first record.
"""

from __future__ import annotations

from dataclasses import dataclass

from groups.ports import Extent, Topics
from raftlog.wire.lag import records_left


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records of a partition that a group has not consumed: from ``first`` on.

    ``time_ms`` is the timestamp of the first committed record among them, or None if there is no such record.
    """

    first: int
    end: int
    time_ms: int | None

    def records(self, committed_offset: int) -> int:
        """The lag in records of a group with this committed offset."""
        return records_left(committed_offset, self.first, self.end)

    def age_s(self, committed_offset: int, now_ms: int) -> float:
        """The age in seconds of the first record that the group has not consumed; 0 without such a record."""
        if self.time_ms is None or not self.records(committed_offset):
            return 0.0
        return max(0, now_ms - self.time_ms) / 1000


async def backlog(
    topics: Topics, topic: str, partition: int, offset: int, extent: Extent, before: Backlog | None = None
) -> Backlog:
    """The backlog from a committed ``offset`` on. Raises ``RaftlogError``.

    The first record of the earlier backlog ``before`` is used again unless it has been consumed or deleted.
    """
    begin = max(offset, extent.start)
    if begin >= extent.end:
        return Backlog(extent.end, extent.end, None)
    if before is not None and before.time_ms is not None and before.first >= begin:
        return Backlog(before.first, max(before.end, extent.end), before.time_ms)
    first, time_ms = await topics.first_record(topic, partition, begin)
    return Backlog(first, max(first, extent.end), time_ms)
