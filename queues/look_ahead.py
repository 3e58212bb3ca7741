"""Jobs of a queue that were read ahead but not delivered yet. Pure.

Decides: which partition of the topic is read next, and when. Leaves to others: reading (the effect ``Look``),
and delivering the jobs (``work_queue``). The cost of a step depends on the number of looks that the step
begins, not on the number of partitions.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from sortedcontainers import SortedSet

from queues.effects import Found, Look, Looked
from raftlog.errors import RaftlogError

WAIT_MS: Final = 5_000  # of a look at the end of a partition
LOOK_COUNT: Final = 200  # maximum jobs of one look
FOUND_MAX: Final = 20_000  # jobs read ahead by one queue, beyond one of each partition
TOTAL_MAX: Final = 100_000  # jobs read ahead by all queues of a coordinator, beyond one of each queue
AGAIN_MS: Final = 300  # pause after a failed look, and of partitions at their end while others have jobs


@dataclass(slots=True)
class _Part:
    """One partition of the topic. ``found`` are the next jobs; records below ``read_offset`` were read."""

    read_offset: int
    found: deque[Found] = field(default_factory=deque)
    look: Literal["now", "tail"] | None = None  # the look under way; a look at the tail waits for records
    began: int = 0  # the mark of the newest look
    again_ms: int = 0  # earliest time of the next look while no receive waits


@dataclass(slots=True)
class AheadTotal:
    """The number of jobs that all queues of one coordinator have read ahead."""

    count: int = 0


class LookAhead:
    """The partitions of one queue, and the jobs that were read ahead in them.

    A partition with found jobs is in ``_giving``. A partition without a found job and without a look under
    way is in ``_due``, in ``_at_tail`` if its newest look reached the end, or in ``_failed``.
    """

    def __init__(self, total: AheadTotal) -> None:
        self._total = total
        self._parts: dict[int, _Part] = {}
        self._giving: SortedSet[int] = SortedSet()
        self._due: SortedSet[tuple[int, int]] = SortedSet()  # mark of the newest look, and partition
        self._at_tail: SortedSet[tuple[int, int]] = SortedSet()  # mark of the newest look, and partition
        self._failed: list[tuple[int, int]] = []  # a heap: time of the next look, and partition
        self._errors: dict[int, RaftlogError] = {}  # of the newest looks
        self._looks_now = 0  # looks under way that do not wait
        self._found = 0  # jobs of all partitions
        self._turn = 0  # the next job comes from this partition or a higher one
        self.mark = 0  # counts looks; a look with a higher mark than a request began after it

    @property
    def partitions(self) -> list[int]:
        """The known partitions, sorted."""
        return sorted(self._parts)

    def add(self, partition: int, offset: int) -> None:
        """Add a partition whose jobs begin at ``offset``. The offset of a known partition may only rise."""
        if partition not in self._parts:
            self._parts[partition] = _Part(offset)
            self._due.add((0, partition))
        part = self._parts[partition]
        part.read_offset = max(part.read_offset, offset)

    def next_offset(self, partition: int) -> int | None:
        """The offset below which all jobs of a partition were taken by ``give``; None for an unknown
        partition.
        """
        part = self._parts.get(partition)
        if part is None:
            return None
        return part.found[0].offset if part.found else part.read_offset

    def give(self) -> tuple[int, Found] | None:
        """Take the next job; the partitions take turns. None if no job was read ahead."""
        if not self._giving:
            return None
        partition = self._giving[self._giving.bisect_left(self._turn) % len(self._giving)]
        self._turn = partition + 1
        part = self._parts[partition]
        given = part.found.popleft()
        self._count(-1)
        if not part.found:
            self._giving.discard(partition)
            self._due.add((part.began, partition))
        return partition, given

    def drop(self) -> None:
        """Forget all jobs that were read ahead, because the queue is not used any more."""
        self._count(-self._found)

    def _count(self, more: int) -> None:
        self._found += more
        self._total.count += more

    def _left(self) -> int:
        """The number of further jobs that may be read ahead."""
        return min(FOUND_MAX - self._found, TOTAL_MAX - self._total.count)

    # Looks.

    def informed_below(self) -> int:
        """The mark below which every receive is known to have no job.

        Since each lower mark, all partitions were read and no further jobs were found.
        """
        if self._looks_now:
            return 0
        oldest = [mark for mark, _ in (*self._at_tail[:1], *self._due[:1])]
        return min(oldest, default=self.mark + 1)  # above all marks of requests

    @property
    def error(self) -> RaftlogError | None:
        """The error of a look if all partitions failed to be read, else None."""
        return next(iter(self._errors.values()), None) if len(self._errors) == len(self._parts) else None

    def next_retry_ms(self) -> int | None:
        """The time in milliseconds of the next look after a failed look; None if no look has failed."""
        return self._failed[0][0] if self._failed else None

    def wanted(self, now_ms: int, newest: int | None, *, may_wait: bool) -> list[tuple[int, int, int]]:
        """The looks to begin now, as partition, offset and waiting time.

        ``newest`` is the mark of the last waiting request; without such a request, partitions at their end
        are read again only after a pause. With ``may_wait`` a look at the end of a partition waits for
        records. While many jobs are known, further looks wait; the partition with the oldest look comes
        first.
        """
        has_none = not self._found and not self._looks_now
        room = max(int(has_none), self._left() // LOOK_COUNT - self._looks_now)
        now = sorted(partition for _, partition in self._due[:room])
        del self._due[:room]
        while self._failed and self._failed[0][0] <= now_ms:
            now.append(heapq.heappop(self._failed)[1])
        while self._at_tail and self._may_have_grown(now_ms, newest):
            now.append(self._at_tail.pop(0)[1])
        self._looks_now += len(now)
        looks = [self._begun(partition, "now") for partition in now]
        if may_wait:
            looks += [self._begun(partition, "tail") for _, partition in self._at_tail]
            self._at_tail.clear()
        return looks

    def _may_have_grown(self, now_ms: int, newest: int | None) -> bool:
        """Whether to read again the partition with the oldest look among the partitions that were at their
        end.
        """
        mark, partition = self._at_tail[0]
        return now_ms >= self._parts[partition].again_ms if newest is None else mark <= newest

    def _begun(self, partition: int, look: Literal["now", "tail"]) -> tuple[int, int, int]:
        self.mark += 1
        part = self._parts[partition]
        part.began, part.look = self.mark, look
        return partition, part.read_offset, WAIT_MS if look == "tail" else 0

    def looked(self, look: Look, result: Looked, now_ms: int, is_new: Callable[[int], bool]) -> bool:
        """Add the found jobs that are not open. Return False, and add none, if the look is outdated."""
        part = self._ended(look)
        if part is None:
            return False
        self._errors.pop(look.partition, None)
        part.again_ms = now_ms + AGAIN_MS
        part.read_offset = result.next_offset
        new, room = [each for each in result.found if is_new(each.offset)], max(1, self._left())
        if len(new) > room:  # a later look finds the rest
            part.read_offset = new[room].offset
        part.found.extend(new[:room])
        self._count(len(new[:room]))
        if part.found:
            self._giving.add(look.partition)
        elif not result.found and (result.is_at_end or result.offset == result.next_offset):
            self._at_tail.add((part.began, look.partition))
        else:
            self._due.add((part.began, look.partition))
        return True

    def failed(self, look: Look, error: RaftlogError, now_ms: int) -> bool:
        """Schedule another look after ``AGAIN_MS``.

        Return False, and schedule none, if the look is outdated.
        """
        part = self._ended(look)
        if part is None:
            return False
        self._errors[look.partition] = error
        heapq.heappush(self._failed, (now_ms + AGAIN_MS, look.partition))
        return True

    def _ended(self, look: Look) -> _Part | None:
        part = self._parts.get(look.partition)
        if part is None or part.look is None or part.read_offset != look.offset:
            return None
        self._looks_now -= part.look == "now"
        part.look = None
        return part
