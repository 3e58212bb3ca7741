"""Bugs in the plans of consumer groups."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

STICKY = "tests/unit/assignors/test_sticky.py"
COOPERATIVE = "tests/unit/assignors/test_cooperative.py"
PLAN = "tests/unit/assignors/test_plan.py"

ASSIGNORS = (
    Mutant(
        "a sticky plan has no chains of moves",
        "raftlog.assignors.balance:_Round._nearer_pools",
        "for pool in member.pools:",
        "for pool in ():",
        script=STICKY,
    ),
    Mutant(
        "a member that gives a moved partition back saves no move",
        "raftlog.assignors.balance:Pool.moved",
        "self.given[member] > self.owned.get(member, 0)",
        "False",
        script=STICKY,
    ),
    Mutant(
        "an owner that has given a partition away does not get it back",
        "raftlog.assignors.balance:Pool.give",
        "self.homes[member] = None",
        "pass",
        script=STICKY,
    ),
    Mutant(
        "the longer rows of a sticky plan go to the first members",
        "raftlog.assignors.balance:Pool.__post_init__",
        "self.homes = dict.fromkeys(self.owned)",
        "self.homes = {}",
        script=STICKY,
    ),
    Mutant(
        "the claim of the lowest generation counts",
        "raftlog.assignors.ownership:owners",
        "generation > known",
        "generation < known",
        script=STICKY,
    ),
    Mutant(
        "of two claims for one generation the first one counts",
        "raftlog.assignors.ownership:owners",
        "found[partition] = None",
        "pass",
        script=STICKY,
    ),
    Mutant(
        "a moving partition is given before its owner has revoked it",
        "raftlog.assignors.cooperative:CooperativeStickyAssignor.assign",
        "if may_start(each, member)",
        "if True",
        script=COOPERATIVE,
    ),
    Mutant(
        "an owner that leaves a topic is thought to have revoked it",
        "raftlog.assignors.cooperative:CooperativeStickyAssignor.assign",
        "owner_of = owners(members)",
        "owner_of = {p: m for p, m in owners(members).items() if m is None or p.topic in members[m].topics}",
        script=COOPERATIVE,
    ),
    Mutant(
        "the turn begins with the first member for each topic",
        "raftlog.assignors.round_robin:RoundRobinAssignor.assign",
        "turn = places[member] + 1",
        "turn = 0",
        script="tests/unit/assignors/test_round_robin.py",
    ),
    Mutant(
        "a static member is sorted by its member id",
        "raftlog.assignors.values:in_order",
        "instance_id or member, member",
        "member, member",
        script="tests/unit/assignors/test_range.py",
    ),
    Mutant(
        "a plan may give one partition to two members",
        "raftlog.assignors.plan:problem_of",
        "if partition in given:",
        "if False:",
        script=PLAN,
    ),
    Mutant(
        "a plan may forget a partition",
        "raftlog.assignors.plan:problem_of",
        "None if may_withhold else",
        "None and",
        script=PLAN,
    ),
)
