"""The jobs of a queue that nobody has had yet, as far as the topic was read ahead. Pure.

Decides: where and when the topic is read next. Leaves to others: reading (the effect ``Look``), and who gets
the jobs (``work_queue``). A step costs time for the looks that begin, not for all partitions of the queue.
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
LOOK_COUNT: Final = 200  # jobs that one look finds, at most
FOUND_MAX: Final = 20_000  # jobs that are remembered of one queue, and one more of each partition
TOTAL_MAX: Final = 100_000  # of all queues of a coordinator; a queue without any looks at one partition
AGAIN_MS: Final = 300  # after a failure, and for partitions at their end while others have jobs


@dataclass(slots=True)
class _Part:
    """One partition. ``found`` are its next jobs, and what follows ``read_offset`` is not known."""

    read_offset: int
    found: deque[Found] = field(default_factory=deque)
    look: Literal["now", "tail"] | None = None  # under way; at the tail it waits for records
    began: int = 0  # the mark of the newest look
    again_ms: int = 0  # when it may be looked at again while nobody waits


@dataclass(slots=True)
class AheadTotal:
    """The number of jobs that all queues of one coordinator have read ahead."""

    count: int = 0


class LookAhead:
    """All partitions of one queue.

    A partition with found jobs is in ``_giving``. Without a job, and without a look under way, it is in
    ``_due``, in ``_at_tail`` if its newest look has found its end, or in ``_failed``.
    """

    def __init__(self, total: AheadTotal) -> None:
        self._total = total
        self._parts: dict[int, _Part] = {}
        self._giving: SortedSet[int] = SortedSet()
        self._due: SortedSet[tuple[int, int]] = SortedSet()  # mark of the newest look, and partition
        self._at_tail: SortedSet[tuple[int, int]] = SortedSet()  # mark of the newest look, and partition
        self._failed: list[tuple[int, int]] = []  # a heap: when it is looked at again, and partition
        self._errors: dict[int, RaftlogError] = {}  # of the newest looks
        self._looks_now = 0  # under way
        self._found = 0  # jobs, of all partitions
        self._turn = 0  # the partition that gives the next job
        self.mark = 0  # counts looks; a look with a higher mark than a request began after it

    @property
    def partitions(self) -> list[int]:
        """In order."""
        return sorted(self._parts)

    def add(self, partition: int, offset: int) -> None:
        """Jobs of this partition are given from ``offset`` on. An offset may rise, and does not fall."""
        if partition not in self._parts:
            self._parts[partition] = _Part(offset)
            self._due.add((0, partition))
        part = self._parts[partition]
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
        part = self._parts[partition]
        given = part.found.popleft()
        self._count(-1)
        if not part.found:
            self._giving.discard(partition)
            self._due.add((part.began, partition))
        return partition, given

    def drop(self) -> None:
        """Forget all jobs that were found: the queue is not used any more."""
        self._count(-self._found)

    def _count(self, more: int) -> None:
        self._found += more
        self._total.count += more

    def _left(self) -> int:
        """Return the number of jobs for which there is still room."""
        return min(FOUND_MAX - self._found, TOTAL_MAX - self._total.count)

    # Looks.

    def informed_below(self) -> int:
        """For each mark below this number it is known that there were no more jobs after it."""
        if self._looks_now:
            return 0
        oldest = [mark for mark, _ in (*self._at_tail[:1], *self._due[:1])]
        return min(oldest, default=self.mark + 1)  # above all marks of requests

    @property
    def error(self) -> RaftlogError | None:
        """Why nothing can be found: no partition can be read."""
        return next(iter(self._errors.values()), None) if len(self._errors) == len(self._parts) else None

    def next_retry_ms(self) -> int | None:
        """When a partition whose look has failed is looked at again."""
        return self._failed[0][0] if self._failed else None

    def wanted(self, now_ms: int, newest: int | None, *, may_wait: bool) -> list[tuple[int, int, int]]:
        """Partition, offset and time of the looks to begin.

        ``newest`` is the mark of the last request that waits; without one, partitions at their end are looked
        at after a while only. With ``may_wait`` a look at the end of a partition waits for records. While
        many jobs are known, others wait; the partition comes first that was looked at first.
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
        """Whether the partition at its end that was looked at first is looked at again."""
        mark, partition = self._at_tail[0]
        return now_ms >= self._parts[partition].again_ms if newest is None else mark <= newest

    def _begun(self, partition: int, look: Literal["now", "tail"]) -> tuple[int, int, int]:
        self.mark += 1
        part = self._parts[partition]
        part.began, part.look = self.mark, look
        return partition, part.read_offset, WAIT_MS if look == "tail" else 0

    def looked(self, look: Look, result: Looked, now_ms: int, is_new: Callable[[int], bool]) -> bool:
        """Take what was found, but for what is open already; false for a look of earlier times."""
        part = self._ended(look)
        if part is None:
            return False
        self._errors.pop(look.partition, None)
        part.again_ms = now_ms + AGAIN_MS
        part.read_offset = result.next_offset
        new, room = [each for each in result.found if is_new(each.offset)], max(1, self._left())
        if len(new) > room:  # the rest is looked at later
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
        """Look again soon."""
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
