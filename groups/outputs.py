"""Collects the answers, records and effects of decisions about groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from groups.expiry import Survey
from groups.plans import MakePlan
from groups.records import CommittedOffset, Group, GroupKey, Key, OffsetKey, Value
from groups.requests import Reply
from groups.state import GroupsState, Slot, Target
from groups.tally import Tally
from groups.unconfirmed import Confirm
from queues.effects import Bury, Look
from queues.records import Job, Queue
from raftlog.hosting import outputs
from raftlog.hosting.budget import Usage
from raftlog.hosting.decisions import Answer, Write

Row = tuple[Key, Value | None]
Done = Look | Bury | Survey | MakePlan | Confirm
Output = Answer[Reply] | Write[Row] | Done


@dataclass(slots=True)
class Outputs(outputs.Outputs[Reply, Row, Done]):
    """Collects outputs. ``state`` is the partition's state once all written records are committed."""

    state: GroupsState
    tally: Tally = field(default_factory=Tally)
    knows_time: Callable[[], bool] = lambda: True

    # Interface of groups for queues (``queues.ports.Groups``).

    @property
    def is_time_known(self) -> bool:
        """Whether the brokers agree on a time, so that their wall clocks are close."""
        return self.knows_time()

    @property
    def queues(self) -> Mapping[str, Mapping[Target, Queue]]:
        """Rows of queues by group."""
        return self.state.queues

    @property
    def jobs(self) -> Mapping[str, Mapping[Slot, Job]]:
        """Rows of open jobs by group."""
        return self.state.jobs

    @property
    def reasons(self) -> Usage:
        """Bytes of the reasons of failures, by group."""
        return self.state.reasons

    def has_group(self, group: str) -> bool:
        """Whether a group exists."""
        return group in self.state.groups

    def committed(self, group: str, topic: str, topic_id: str, partition: int) -> int | None:
        """The committed offset of a group in the topic with this id; None without a committed offset."""
        found = self.state.offsets.get(group, {}).get((topic, partition))
        return found.offset if found is not None and found.topic_id == topic_id else None

    def group_row(self, group: str, client: str, wall_ms: int) -> Row:
        """Make the row of a new group, which counts for the client's limit."""
        return GroupKey(group), Group(changed_ms=wall_ms, client=client)

    def offset_row(
        self, group: str, topic: str, topic_id: str, partition: int, offset: int, wall_ms: int
    ) -> Row:
        """Make the row of a committed offset."""
        committed = CommittedOffset(offset=offset, topic_id=topic_id, committed_ms=wall_ms)
        return OffsetKey(group, topic, partition), committed

    def put(self, row: Row) -> None:
        """Apply a row to the state, and count the row for metrics."""
        key, value = row
        self.tally.written(key, self.state.groups.get(key.group), value)
        self.state.put(key, value)
