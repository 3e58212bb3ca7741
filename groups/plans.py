"""Makes or checks the plan of one generation. Pure, but may take a second.

Decides: whether a plan is valid. Leaves to others: the assignment strategies (``raftlog.assignors``), the
thread that makes the plan (``coordinator``), ignoring a plan that comes too late (``membership``).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from groups import generations
from groups.records import Group
from groups.requests import Plan
from raftlog.errors import InvalidRequest
from raftlog.hosting.decisions import Effect


@dataclass(frozen=True, slots=True)
class MakePlan(Effect):
    """Make the plan of a generation, or check the plan that its leader has sent, then report the outcome."""

    name: str
    group: Group  # in this generation, without a plan
    plan: Plan | None  # the leader's plan to check; None: make one by the group's strategy

    @property
    def size(self) -> int:
        """The number of members and partitions, including owned partitions and partitions in the plan."""
        targets = [member.owned for member in self.group.members.values()]
        targets += (self.plan or {}).values()
        named = sum(len(numbers) for each in targets for numbers in each.values())
        return len(targets) + sum(self.group.partition_counts.values()) + named


@dataclass(frozen=True, slots=True)
class Planned:
    """A generation with its plan. ``withholds`` is the result of ``generations.withholds``."""

    group: Group
    withholds: bool


def planned(asked: MakePlan) -> Planned:
    """Make or check the plan of a generation. Raises ``InvalidRequest`` for an invalid plan."""
    before = asked.group
    plan = generations.server_plan(before) if asked.plan is None else asked.plan
    problem = generations.problem_of_plan(before, plan)
    if problem is not None:
        raise InvalidRequest(f"plan: {problem}", field="plan")
    group = msgspec.structs.replace(before, members=generations.with_plan(before, plan), has_plan=True)
    return Planned(group, generations.withholds(group))
