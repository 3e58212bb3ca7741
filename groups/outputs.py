"""What the coordinator wants done after a step: answers, records, effects, in order. It decides nothing."""

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
from raftlog.errors import RaftlogError
from raftlog.hosting.decisions import Answer, RequestId, Write

Row = tuple[Key, Value | None]
Output = Answer[Reply] | Write[Row] | Look | Bury | Survey | MakePlan | Confirm


@dataclass(slots=True)
class Outputs:
    """Collects them. ``state`` is what the partition's records add up to once all are committed."""

    state: GroupsState
    tally: Tally = field(default_factory=Tally)
    wanted: list[Output] = field(default_factory=list)

    def answer(self, request_id: RequestId, reply: Reply | RaftlogError) -> None:
        """Answer one request."""
        self.wanted.append(Answer(request_id, reply))

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Write records; the state has them at once."""
        self.wanted.append(Write(rows, frees_room))
        for key, value in rows:
            self.tally.written(key, self.state.groups.get(key.group), value)
            self.state.put(key, value)

    def perform(self, effect: Look | Bury | Survey | MakePlan | Confirm) -> None:
        """Have something done once all records before it are committed."""
        self.wanted.append(effect)

    def take(self) -> list[Output]:
        """All since the last call."""
        taken, self.wanted = self.wanted, []
        return taken
