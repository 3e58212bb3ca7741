"""The jobs of a queue that nobody has had yet, as far as the topic was read ahead. Pure.

Decides: where and when the topic is read next. Leaves to others: reading (the effect ``Look``), and who gets
the jobs (``work_queue``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from sortedcontainers import SortedSet

from groups.queue_effects import Found, Look, Looked
from raftlog.errors import RaftlogError

WAIT_MS: Final = 5_000  # of a look at the end of a partition
AGAIN_MS: Final = 300  # after a failure, and for partitions at their end while others have jobs


@dataclass(slots=True)
class _Part:
    """One partition. ``found`` are its next jobs, and what follows ``read_offset`` is not known."""

    read_offset: int
    found: deque[Found] = field(default_factory=deque)
    look: Literal["now", "tail"] | None = None  # under way; at the tail it waits for records
    began: int = 0  # the mark of the newest look
    is_at_tail: bool = False  # as the newest look has found
    again_ms: int = 0
    error: RaftlogError | None = None  # of the newest look


class LookAhead:
    """All partitions of one queue."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._giving: SortedSet[int] = SortedSet()  # partitions that have found jobs
        self._turn = 0  # the partition that gives the next job
        self.mark = 0  # counts looks; a look with a higher mark than a request began after it

    @property
    def partitions(self) -> list[int]:
        """In order."""
        return sorted(self._parts)

    def add(self, partition: int, offset: int) -> None:
        """Jobs of this partition are given from ``offset`` on. An offset may rise, and does not fall."""
        part = self._parts.setdefault(partition, _Part(offset))
        part.read_offset = max(part.read_offset, offset)

    def next_offset(self, partition: int) -> int | None:
        """Every job below it was given; None for a partition that is not known."""
        part = self._parts.get(partition)
        if part is None:
            return None
        return part.found[0].offset if part.found else part.read_offset

    def give(self) -> tuple[int, Found] | None:
        """The next job, of the partitions in turn."""
        if not self._giving:
            return None
        partition = self._giving[self._giving.bisect_left(self._turn) % len(self._giving)]
        self._turn = partition + 1
        found = self._parts[partition].found
        given = found.popleft()
        if not found:
            self._giving.discard(partition)
        return partition, given

    # Looks.

    @property
    def informed_below(self) -> int:
        """For each mark below this number it is known that there were no more jobs after it."""
        below = self.mark + 1  # above all marks of requests
        for part in self._parts.values():
            if part.look == "now":
                return 0
            if part.look is None and not part.found and part.error is None:
                below = min(below, part.began)
        return below

    @property
    def error(self) -> RaftlogError | None:
        """Why nothing can be found: no partition can be read."""
        errors = [part.error for part in self._parts.values()]
        return errors[0] if errors and all(errors) else None

    def next_retry_ms(self) -> int | None:
        """When a partition whose look has failed is looked at again."""
        times = [part.again_ms for part in self._parts.values() if part.error and part.look is None]
        return min(times, default=None)

    def wanted(self, now_ms: int, newest: int | None, *, may_wait: bool) -> Iterator[tuple[int, int, int]]:
        """Partition, offset and time of the looks to begin.

        ``newest`` is the mark of the last request that waits; without one, partitions at their end are looked
        at after a while only. With ``may_wait`` a look at the end of a partition waits for records.
        """
        for partition, part in sorted(self._parts.items()):
            if part.look is not None or part.found:
                continue
            if now_ms < part.again_ms and (part.error is not None or newest is None):
                continue
            is_known = newest is not None and part.is_at_tail and part.began > newest
            if is_known and not may_wait:
                continue
            self.mark += 1
            part.began, part.look = self.mark, "tail" if is_known else "now"
            yield partition, part.read_offset, WAIT_MS if is_known else 0

    def looked(self, look: Look, result: Looked, now_ms: int, is_new: Callable[[int], bool]) -> bool:
        """Take what was found, but for what is open already; false for a look of earlier times."""
        part = self._ended(look)
        if part is None:
            return False
        part.error = None
        part.is_at_tail = not result.found and (result.is_at_end or result.offset == result.next_offset)
        part.again_ms = now_ms + AGAIN_MS if part.is_at_tail else 0
        part.read_offset = result.next_offset
        part.found.extend(each for each in result.found if is_new(each.offset))
        if part.found:
            self._giving.add(look.partition)
        return True

    def failed(self, look: Look, error: RaftlogError, now_ms: int) -> bool:
        """Look again soon."""
        part = self._ended(look)
        if part is None:
            return False
        part.error, part.again_ms, part.is_at_tail = error, now_ms + AGAIN_MS, False
        return True

    def _ended(self, look: Look) -> _Part | None:
        part = self._parts.get(look.partition)
        if part is None or part.look is None or part.read_offset != look.offset:
            return None
        part.look = None
        return part
