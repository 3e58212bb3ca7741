"""The open jobs of one queue. Pure.

A job is open from its first lease until it is done. In a queue ordered by key, a job is also open while it
waits behind another job of its key.

Decides: which open job is delivered next, and the offset up to which a partition is done. Leaves to others:
leases, rows and answers (``work_queue``). Memory is proportional to the number of open jobs: heaps are
rebuilt when most of their entries are stale.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Final

from queues.records import Job
from queues.requests import PartView

Place = tuple[int, int]  # partition and offset
Line = tuple[int, bytes]  # partition and digest of a key
JOBS_AT_ONCE: Final = 20  # jobs of one step, which takes half as long as taking over a group
RUN: Final = 50  # jobs that one step sorts
STALE_MIN: Final = 1_000  # stale entries in a heap before it is rebuilt


@dataclass(slots=True)
class _Open:
    """A job and its slot. ``until_ms`` is the end of its lease or pause; None if neither runs."""

    slot: int
    job: Job
    until_ms: int | None = None


@dataclass(slots=True)
class _Slots:
    """The free slots of a queue. The lowest free slot is used first."""

    end: int = 0
    free: list[int] = field(default_factory=list)

    @classmethod
    def without(cls, taken: Sequence[int]) -> _Slots:
        end = max(taken, default=-1) + 1
        return cls(end, sorted(set(range(end)).difference(taken)))

    def take(self) -> int:
        if self.free:
            return heapq.heappop(self.free)
        self.end += 1
        return self.end - 1

    def give_back(self, slot: int) -> None:
        heapq.heappush(self.free, slot)


class OpenJobs:
    """The open jobs of a queue, with times of one coordinator's monotonic clock."""

    def __init__(self, *, is_ordered: bool = False) -> None:
        self.is_ordered = is_ordered
        self._slots = _Slots()
        self._open: dict[Place, _Open] = {}
        self._until: list[tuple[int, Place]] = []
        self._ready: list[Place] = []
        self._offsets: dict[int, list[int]] = {}  # by partition, a heap
        self._lines: dict[Line, deque[int]] = {}  # offsets of the open jobs of each key, in order
        self._leases: dict[bytes, set[Place]] = {}

    def take_over(
        self, jobs: Mapping[int, Job], now_ms: int, wall_ms: int, *, is_time_known: bool
    ) -> Iterator[None]:
        """Add all stored jobs of a queue (by slot), some jobs per step.

        A lease keeps its remaining time, limited to its length. A lease gets its whole length if the brokers
        do not agree on a time now, or did not agree when the lease was stored. No job is offered before all
        jobs have been added.
        """
        self._slots, rows = _Slots.without([*jobs]), iter(jobs.items())
        runs: list[list[tuple[int, Job]]] = []
        while run := sorted(islice(rows, RUN), key=_by_turn):
            runs.append(run)
            if len(run) == RUN:
                yield
        for number, (slot, job) in enumerate(merge(*runs, key=_by_turn), 1):
            self._enter(_Open(slot, job))
            if not number % JOBS_AT_ONCE:
                yield
        for number, (place, each) in enumerate(self._open.items(), 1):
            left_ms = each.job.term_ms
            if is_time_known and not each.job.is_undated:
                left_ms = min(max(0, each.job.due_ms - wall_ms), left_ms)
            self._place(place, each, now_ms + left_ms if left_ms or each.job.state == "leased" else None)
            if not number % JOBS_AT_ONCE:
                yield

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, place: Place) -> bool:
        return place in self._open

    def get(self, place: Place) -> Job | None:
        """The job at a place, or None if no open job is there."""
        found = self._open.get(place)
        return None if found is None else found.job

    def slot_of(self, place: Place) -> int:
        """The slot of an open job."""
        return self._open[place].slot

    def is_held(self, place: Place) -> bool:
        """Whether the lease of an open job is running."""
        found = self._open[place]
        return found.job.state == "leased" and found.until_ms is not None

    def held_under(self, lease: bytes) -> list[Place]:
        """The jobs that have a running lease with this id."""
        return sorted(place for place in self._leases.get(lease, ()) if self.is_held(place))

    def views(self, ends: Mapping[int, int]) -> tuple[PartView, ...]:
        """Counts of open jobs by partition; ``ends`` are the next offsets.

        Jobs with ended leases count as waiting.
        """
        found = {partition: {"leased": 0, "waiting": 0, "dead": 0} for partition in ends}
        for place, each in self._open.items():
            is_over = each.job.state == "leased" and not self.is_held(place)
            found[place[0]]["waiting" if is_over else each.job.state] += 1
        return tuple(
            PartView(partition=part, start_offset=self.start(part, end), next_offset=end, **found[part])
            for part, end in ends.items()
        )

    def dead(self) -> list[Place]:
        """The jobs on their way to the dead-letter topic."""
        return [place for place, each in self._open.items() if each.job.state == "dead"]

    def start(self, partition: int, end: int) -> int:
        """The offset of the first open job of a partition, or ``end``.

        All jobs below this offset are done.
        """
        offsets = self._offsets.get(partition, [])
        while offsets and (partition, offsets[0]) not in self._open:
            heapq.heappop(offsets)
        return offsets[0] if offsets else end

    def next_deadline_ms(self) -> int | None:
        """The earliest end of a lease or pause, in milliseconds. That lease or pause may have ended early."""
        return self._until[0][0] if self._until else None

    # Changes.

    def open(self, place: Place, key: bytes) -> Job:
        """Open a job without offering it. The caller must lease the job, unless it ``is_blocked``."""
        assert place not in self._open
        job = Job(partition=place[0], offset=place[1], state="waiting", key=key)
        self._enter(_Open(self._slots.take(), job))
        return job

    def is_blocked(self, place: Place) -> bool:
        """Whether the job at a place waits behind an earlier open job of its key."""
        line = self._line_of(place, self._open[place].job)
        return line is not None and self._lines[line][0] != place[1]

    def put(self, place: Place, job: Job, until_ms: int | None) -> None:
        """Replace an open job. Unless dead, the job may be delivered at ``until_ms`` (None: at once)."""
        each = self._open[place]
        self._leave_lease(place, each.job.lease)
        each.job = job
        self._place(place, each, until_ms)

    def close(self, place: Place) -> int:
        """Close a job that is done, and return its freed slot."""
        each = self._open.pop(place)
        self._slots.give_back(each.slot)
        self._leave_lease(place, each.job.lease)
        line = self._line_of(place, each.job)
        if line is not None:
            self._lines[line].remove(place[1])
            if self._lines[line]:
                self._offer((place[0], self._lines[line][0]))
            else:
                del self._lines[line]
        return each.slot

    def take_ready(self) -> Place | None:
        """Take the next open job to deliver; None if no job is ready.

        The caller must lease the job at once.
        """
        while self._ready:
            place = heapq.heappop(self._ready)
            if self._is_ready(place):
                return place
        return None

    def ended(self, now_ms: int, count_max: int) -> list[Place]:
        """Offer up to ``count_max`` jobs whose lease or pause has ended, and return their places."""
        found: list[Place] = []
        while len(found) < count_max and self._until and self._until[0][0] <= now_ms:
            at_ms, place = heapq.heappop(self._until)
            each = self._open.get(place)
            if each is not None and each.until_ms == at_ms:
                each.until_ms = None
                self._offer(place)
                found.append(place)
        return found

    # Parts.

    def _enter(self, each: _Open) -> None:
        place = (each.job.partition, each.job.offset)
        self._open[place] = each
        offsets = self._offsets.setdefault(place[0], [])
        if len(offsets) > 2 * len(self._open) + STALE_MIN:
            offsets[:] = sorted(offset for offset in offsets if (place[0], offset) in self._open)
        heapq.heappush(offsets, place[1])
        line = self._line_of(place, each.job)
        if line is not None:
            self._lines.setdefault(line, deque()).append(place[1])

    def _place(self, place: Place, each: _Open, until_ms: int | None) -> None:
        each.until_ms = until_ms
        if each.job.lease:
            self._leases.setdefault(each.job.lease, set()).add(place)
        if until_ms is None:
            self._offer(place)
            return
        if len(self._until) > 2 * len(self._open) + STALE_MIN:
            self._until = [(one.until_ms, at) for at, one in self._open.items() if one.until_ms is not None]
            heapq.heapify(self._until)
        heapq.heappush(self._until, (until_ms, place))

    def _offer(self, place: Place) -> None:
        if self._is_ready(place):
            heapq.heappush(self._ready, place)

    def _is_ready(self, place: Place) -> bool:
        each = self._open.get(place)
        if each is None or each.until_ms is not None or each.job.state == "dead":
            return False
        return not self.is_blocked(place)

    def _leave_lease(self, place: Place, lease: bytes) -> None:
        held = self._leases.get(lease)
        if held is not None:
            held.discard(place)
            if not held:
                del self._leases[lease]

    def _line_of(self, place: Place, job: Job) -> Line | None:
        return (place[0], job.key) if self.is_ordered and job.key else None


def _by_turn(row: tuple[int, Job]) -> tuple[int, bool, int, int]:
    """Sort key of a stored job: in a partition delivered jobs come first, redriven dead letters last."""
    job = row[1]
    return job.partition, not job.deliveries, job.redrives, job.offset
