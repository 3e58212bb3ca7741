"""Reports of leaders about brokers that recently could not open a new replica.

Decides: how long a report counts. Leaves to others: when a leader reports (``partitions.reassignment``), and
the moves that follow (``healing``).

Reports are kept in memory only: leaders repeat them while a move makes no progress, so a new controller soon
has the reports. For ``AVOIDED_MS`` after the last report about a broker and a partition, the broker gets no
new replicas.
"""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.types import NodeId, TopicId

AVOIDED_MS: Final = 60_000  # several times the interval of a leader's reports


class MoveStuck(msgspec.Struct, frozen=True, array_like=True, tag="move_stuck"):
    """A leader's report: a live broker does not open the new replica of a move."""

    name: str
    topic_id: TopicId
    partition: int
    target_version: int  # version of the partition's metadata with the target of the move
    broker_id: NodeId
    reason: str


Refused = tuple[MoveStuck, ...]


class Refusals:
    """The newest report for each new replica."""

    def __init__(self) -> None:
        self._reports: dict[tuple[TopicId, int, NodeId], tuple[float, MoveStuck]] = {}

    def note(self, report: MoveStuck, now_ms: float) -> bool:
        """Store a report; return whether it is the first report about its broker and partition."""
        key = (report.topic_id, report.partition, report.broker_id)
        is_new = key not in self._reports
        self._reports[key] = (now_ms, report)
        return is_new

    def now(self, now_ms: float) -> Refused:
        """The reports that still count, ordered by broker and partition."""
        self._reports = {key: found for key, found in self._reports.items() if now_ms - found[0] < AVOIDED_MS}
        reports = (report for _, report in self._reports.values())
        return tuple(sorted(reports, key=lambda one: (one.broker_id, one.name, one.partition)))

    def begin_again(self) -> None:
        """Forget all reports, because this controller does not lead."""
        self._reports = {}
