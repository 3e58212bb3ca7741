"""Limits of open jobs, by number and bytes: of one queue, of one group, and of all queues.

Decides: whether further jobs may be open. The reason of a failure is shortened if its bytes would exceed the
limits, since reports of workers about their jobs must not be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from queues.look_ahead import AheadTotal
from raftlog.errors import Overloaded
from raftlog.hosting.budget import SHARE, Usage

JOB_BYTES: Final = 2_000  # approximate memory of an open job on its leader, without the reason of a failure
BYTES_MAX: Final = 64 << 20  # of one partition of ``__offsets``
CUT_CHARACTERS: Final = 50
RETRY_AFTER_MS: Final = 1_000


@dataclass(slots=True)
class Room:
    """The room for open jobs. ``open`` counts the open jobs by group.

    A group may have its share of all open jobs, or as many as one full queue.
    """

    queue_max: int
    total_max: int
    bytes_max: int
    reasons: Usage  # bytes of the reasons of failures, by group
    open: Usage = field(default_factory=Usage)
    ahead: AheadTotal = field(default_factory=AheadTotal)

    def has(self, group: str, queue_open: int, count: int = 1) -> bool:
        """Whether ``count`` more jobs may be open in a queue that has ``queue_open`` open jobs."""
        return (
            queue_open + count <= self.queue_max
            and self.open.of(group) + count <= max(self.queue_max, self.total_max // SHARE)
            and self.open.total + count <= self.total_max
            and self._has_bytes(group, count * JOB_BYTES)
        )

    def used_bytes(self) -> int:
        """The bytes of all open jobs."""
        return self.open.total * JOB_BYTES + self.reasons.total

    def kept_reason(self, group: str, reason: str) -> str:
        """The whole reason, or only its beginning if the limits allow no more."""
        return reason if self._has_bytes(group, 4 * len(reason)) else reason[:CUT_CHARACTERS]

    def _has_bytes(self, group: str, more: int) -> bool:
        of_group = self.open.of(group) * JOB_BYTES + self.reasons.of(group)
        share_max = max(self.queue_max * JOB_BYTES, self.bytes_max // SHARE)
        return of_group + more <= share_max and self.used_bytes() + more <= self.bytes_max


def no_room(group: str, topic: str, queue_open: int) -> Overloaded:
    """The error for a worker when the limits allow no more open jobs."""
    return Overloaded(
        f"queue {topic} of group {group} has {queue_open} open jobs, and no more jobs may be leased; "
        "acknowledge some jobs, or raise queues.open_jobs_queue_max, queues.open_jobs_max or "
        "queues.open_jobs_bytes_max",
        retry_after_ms=RETRY_AFTER_MS,
    )
