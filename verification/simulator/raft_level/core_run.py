"""Runs one seed of bare cores: a phase with faults, then healing and the final checks."""

from __future__ import annotations

import random
from typing import Final

from raftlog.core.inputs import PeerUnreachable
from raftlog.errors import InvariantViolated
from verification.simulator.gc_off import gc_off
from verification.simulator.raft_level.absence import absence
from verification.simulator.raft_level.agreement import disagreement
from verification.simulator.raft_level.faults import CoreFaults
from verification.simulator.raft_level.group import STEP_S, Group
from verification.simulator.raft_level.odds import CoreOdds
from verification.simulator.raft_level.reachability import tell_return
from verification.simulator.raft_level.requests import Requests
from verification.simulator.result import Broken, Result, Violation
from verification.simulator.schedule import Schedule

SIZES: Final = (3, 3, 5, 4, 5, 3, 1, 3, 5, 2)
SPARES: Final = 2
COMMITS_WITHIN_STEPS: Final = 100  # after healing, and a few election timeouts
AGREES_WITHIN_STEPS: Final = 430  # further steps until all are quiescent


def run_core(
    seed: int,
    odds: CoreOdds | None = None,
    *,
    schedule: Schedule | None = None,
    keeps_lines: bool = False,
) -> Result:
    """Run one seed, from the first step to the result. With a ``schedule`` exactly the scheduled faults
    happen.
    """
    size = SIZES[seed % len(SIZES)]
    group = Group(size, seed, odds, spares=SPARES, keeps_lines=keeps_lines)
    Requests(group, seed)
    faults = CoreFaults(group, seed, schedule)
    violations: tuple[Violation, ...] = ()
    with gc_off():
        try:
            group.run(group.odds.trouble_steps)
            check_recovery(group, seed)
        except Broken as broken:
            violations = (Violation(group.now * STEP_S, broken.invariant, broken.detail),)
        except (Exception, InvariantViolated) as error:
            detail = f"{type(error).__name__}: {error}"
            violations = (Violation(group.now * STEP_S, "I9 no failed assertion", detail),)
    for violation in violations:
        group.trace.note(None, f"VIOLATION {violation.invariant}: {violation.detail}")
    return Result(
        name=f"core:{seed}",
        faults=faults.counts,
        acknowledged=group.acknowledged,
        violations=violations,
        simulated_s=group.now * STEP_S,
        trace=group.trace.hash,
        timeline=group.trace.timeline(),
        happened=tuple(faults.happened),
    )


def check_recovery(group: Group, seed: int) -> None:
    """Check that after healing the group commits again, its members agree and become quiescent, and it
    survives the loss of its leader.
    """
    before = len(group.checker.committed)
    group.heal()
    for node in group.nodes:
        tell_return(group, node, random.Random(f"{seed} healed"))
    enough = _enough_steps(group)
    for _ in range(enough):
        group.step()
        leader = group.leader()
        if leader is not None and len(group.checker.committed) == before:
            group.propose(leader, 1)
    if len(group.checker.committed) == before:
        raise Broken("L2 a healed group works", f"no entry is committed within {enough} steps")
    group.run(30)
    group.retire()
    group.run(100)
    leader = group.leader()
    if leader is None:
        raise Broken("L2 a healed group works", "there is no leader")
    group.propose(leader, 1)  # truncates tails that a leader without new entries would leave
    group.run(AGREES_WITHIN_STEPS - 130)
    _check_agreement(group)
    absence(group, seed)
    _lose_a_minority(group)


def _enough_steps(group: Group) -> int:
    """Return a number of steps that is enough for a few split votes; it follows from the election timeout."""
    election_ticks: int = group.settings["election_ticks"]
    return COMMITS_WITHIN_STEPS + 4 * election_ticks


def _lose_a_minority(group: Group) -> None:
    """Stop the leader and some other members permanently while all are quiescent. The remaining members are
    notified, and must continue.
    """
    leader = group.leader()
    assert leader is not None
    voters = sorted(leader.core.membership.voters)
    at = voters.index(leader.id)
    gone = [*voters[at:], *voters[:at]][: (len(voters) - 1) // 2]
    if not gone:
        return
    for lost in gone:
        group.trace.note(lost, "is gone for good")
        group.nodes[lost].is_up, group.nodes[lost].is_retired = False, True
    for node in [node for node in group.nodes.values() if node.is_up]:
        for lost in gone:
            group.feed(node, PeerUnreachable(lost))
    before = len(group.checker.committed)
    for _ in range(_enough_steps(group)):
        group.step()
        successor = group.leader()
        if len(group.checker.committed) > before:
            return
        if successor is not None:
            group.propose(successor, 1)
    raise Broken(
        "L7 a group works without a minority", f"{gone} of {voters} are stopped, and no entry is committed"
    )


def _check_agreement(group: Group) -> None:
    broken = disagreement(group)
    if broken is not None:
        raise broken
