"""How many jobs may be open: of one queue, of one group, and of all in one partition of ``__offsets``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from raftlog.errors import Overloaded
from raftlog.hosting.budget import SHARE, Usage

RETRY_AFTER_MS: Final = 1_000


@dataclass(slots=True)
class Room:
    """``open`` counts the jobs of all queues by group. A group has a share, or one full queue."""

    queue_max: int
    total_max: int
    open: Usage = field(default_factory=Usage)

    def has(self, group: str, queue_open: int, count: int = 1) -> bool:
        """Whether so many more may be open in a queue of the group that has ``queue_open``."""
        return (
            queue_open + count <= self.queue_max
            and self.open.of(group) + count <= max(self.queue_max, self.total_max // SHARE)
            and self.open.total + count <= self.total_max
        )


def no_room(group: str, topic: str, queue_open: int) -> Overloaded:
    """What somebody is told for whom there is no room."""
    return Overloaded(
        f"queue {topic} of group {group} has {queue_open} open jobs, and no more may be leased; "
        "acknowledge some",
        retry_after_ms=RETRY_AFTER_MS,
    )
