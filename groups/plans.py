"""The plan of one generation, which may take a second: made, or checked, beside the decisions. Pure.

Decides: whether a plan can be used. Leaves to others: which member gets what (``raftlog.assignors``), which
thread the work is done on (``coordinator``), what becomes of a plan that comes too late (``membership``).
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
    """Make the plan of a generation, or check the plan of its leader, then report the outcome."""

    name: str
    group: Group  # in this generation, without a plan
    plan: Plan | None  # of the leader; None: by the strategy of the group

    @property
    def size(self) -> int:
        """The number of members and partitions, with partitions that members owned or that the plan names."""
        targets = [member.owned for member in self.group.members.values()]
        targets += (self.plan or {}).values()
        named = sum(len(numbers) for each in targets for numbers in each.values())
        return len(targets) + sum(self.group.partition_counts.values()) + named


@dataclass(frozen=True, slots=True)
class Planned:
    """A generation with its plan. ``withholds``: see ``generations.withholds``."""

    group: Group
    withholds: bool


def planned(asked: MakePlan) -> Planned:
    """The generation with its plan. Raises ``InvalidRequest`` for a plan that does not fit."""
    before = asked.group
    plan = generations.server_plan(before) if asked.plan is None else asked.plan
    problem = generations.problem_of_plan(before, plan)
    if problem is not None:
        raise InvalidRequest(f"plan: {problem}", field="plan")
    group = msgspec.structs.replace(before, members=generations.with_plan(before, plan), has_plan=True)
    return Planned(group, generations.withholds(group))
