"""Brokers that lately could not open a new replica, as leaders of partitions have told the active controller.

Decides: how long a report counts. Leaves to others: when a leader reports (``partitions.reassignment``), and
what follows from it (``healing``).

Nothing is written down: leaders repeat their reports while a move makes no progress, so a new controller
learns of them. A broker is avoided for ``AVOIDED_MS`` after the last report, then it may be tried again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.types import NodeId, TopicId

AVOIDED_MS: Final = 60_000  # several times what a leader waits before it reports


class MoveStuck(msgspec.Struct, frozen=True, array_like=True, tag="move_stuck"):
    """A leader's report: a broker that is alive does not open the replica that a move brings to it."""

    name: str
    topic_id: TopicId
    partition: int
    target_version: int  # of the partition's metadata that the leader works towards
    broker_id: NodeId
    reason: str


Refused = tuple[MoveStuck, ...]


class Refusals:
    """The reports that count, the newest for each replica."""

    def __init__(self) -> None:
        self._reports: dict[tuple[TopicId, int, NodeId], tuple[float, MoveStuck]] = {}

    def note(self, report: MoveStuck, now_ms: float) -> bool:
        """Take in a report; whether none is known of this replica."""
        key = (report.topic_id, report.partition, report.broker_id)
        is_new = key not in self._reports
        self._reports[key] = (now_ms, report)
        return is_new

    def now(self, now_ms: float) -> Refused:
        """The reports that count now, by broker and partition."""
        self._reports = {key: found for key, found in self._reports.items() if now_ms - found[0] < AVOIDED_MS}
        reports = (report for _, report in self._reports.values())
        return tuple(sorted(reports, key=lambda one: (one.broker_id, one.name, one.partition)))

    def begin_again(self) -> None:
        """Forget all reports: this controller does not lead."""
        self._reports = {}
