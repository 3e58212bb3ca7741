"""The waiting receives of one queue. Pure.

Decides: the order in which receives are served, and which of them end. Leaves to others: jobs and answers
(``work_queue``). The cost of a step depends on the receives that it serves or ends, not on the number of
waiting receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from sortedcontainers import SortedSet

from queues.requests import Receive
from raftlog.hosting.decisions import RequestId

GRACE_MS: Final = 2_000  # extra time of a receive for the first look after it


@dataclass(frozen=True, slots=True)
class Waiter:
    """A waiting receive. ``mark`` is the number of looks that began before the receive."""

    request_id: RequestId
    ask: Receive
    until_ms: int
    mark: int


class Waiters:
    """The waiting receives, served in the order of their arrival. Each has another lease."""

    def __init__(self) -> None:
        self._by_id: dict[RequestId, Waiter] = {}
        self._by_lease: dict[bytes, Waiter] = {}
        self._ends: SortedSet[tuple[int, RequestId]] = SortedSet()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._by_id.values())

    def add(self, waiter: Waiter) -> None:
        """Add a receive behind all other receives."""
        self._by_id[waiter.request_id] = waiter
        self._by_lease[waiter.ask.lease] = waiter
        self._ends.add((waiter.until_ms, waiter.request_id))

    def remove(self, request_id: RequestId) -> None:
        """Remove a receive that was answered, or whose caller has gone."""
        waiter = self._by_id.pop(request_id, None)
        if waiter is not None:
            del self._by_lease[waiter.ask.lease]
            self._ends.remove((waiter.until_ms, request_id))

    def with_lease(self, lease: bytes) -> Waiter | None:
        """The waiting receive with this lease, or None."""
        return self._by_lease.get(lease)

    @property
    def newest_mark(self) -> int | None:
        """The mark of the newest receive, which is the highest mark; None without receives."""
        return next((waiter.mark for waiter in reversed(self._by_id.values())), None)

    def may_wait(self, now_ms: int) -> bool:
        """Whether the time of any receive is not up yet."""
        return bool(self._ends) and self._ends[-1][0] > now_ms

    def over(self, now_ms: int, informed_below: int) -> list[Waiter]:
        """The receives to answer without a job: their time is up, and their mark is below ``informed_below``.

        Receives with a higher mark wait up to ``GRACE_MS`` longer.
        """
        until_ms = now_ms if informed_below else now_ms - GRACE_MS
        ended = takewhile(lambda end: end[0] <= until_ms, self._ends)
        waiters = [self._by_id[request_id] for _, request_id in ended]
        return [
            waiter
            for waiter in waiters
            if waiter.mark < informed_below or now_ms >= waiter.until_ms + GRACE_MS
        ]

    def next_end_ms(self, now_ms: int) -> int | None:
        """The time in milliseconds at which ``over`` may return another receive; None without receives."""
        begin = self._ends.bisect_right((now_ms, float("inf")))
        times = [self._ends[0][0] + GRACE_MS] if begin else []
        times += [end for end, _ in self._ends[begin : begin + 1]]
        return min(times, default=None)
