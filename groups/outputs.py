"""What the coordinator of groups wants done after a step, in order. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from groups.expiry import Survey
from groups.plans import MakePlan
from groups.queue_effects import Bury, Look
from groups.records import Key, Value
from groups.requests import Reply
from groups.state import GroupsState
from groups.tally import Tally
from groups.unconfirmed import Confirm
from raftlog.hosting import outputs
from raftlog.hosting.decisions import Answer, Write

Row = tuple[Key, Value | None]
Done = Look | Bury | Survey | MakePlan | Confirm
Output = Answer[Reply] | Write[Row] | Done


@dataclass(slots=True)
class Outputs(outputs.Outputs[Reply, Row, Done]):
    """Collects them. ``state`` is what the partition's records add up to once all are committed."""

    state: GroupsState
    tally: Tally = field(default_factory=Tally)

    def put(self, row: Row) -> None:
        """See ``raftlog.hosting.outputs.Outputs.put``; counts what metrics show, too."""
        key, value = row
        self.tally.written(key, self.state.groups.get(key.group), value)
        self.state.put(key, value)
