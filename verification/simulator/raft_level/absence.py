"""Lets some members of a healed group be absent. The group becomes quiescent, and must send returning members
the entries that they lack.

Decides: who is absent and why, the events during the absence, and the state in which each member returns. No
client sends a request after their return: only reports about reachable peers can end the quiescence.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from raftlog.core.inputs import Campaign, ChangeMembership, LogTruncatedPrefix, TransferLeadership
from raftlog.core.membership import Membership
from raftlog.types import EntryId, Index, NodeId, Token
from verification.simulator.raft_level.agreement import disagreement
from verification.simulator.raft_level.faults import empty_disk
from verification.simulator.raft_level.group import Group
from verification.simulator.raft_level.log import Node
from verification.simulator.raft_level.reachability import LATE_STEPS, tell_loss, tell_return
from verification.simulator.result import Broken

QUIESCENT_WITHIN_STEPS: Final = 500
LOOK_EVERY_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class _Absent:
    id: NodeId
    is_cut_off: bool  # it runs, and no message reaches it or leaves it


def absence(group: Group, seed: int) -> None:
    """Make a minority of the voters, and any number of learners, absent for a while; the group is quiescent
    before.
    """
    rng = random.Random(f"{seed} absence")
    absent = _chosen(group, rng)
    if not absent:
        return
    _lose(group, absent, rng)
    _work(group, rng)
    gone = {each.id for each in absent}
    _run_until_quiescent(group, gone, "L9 a group is quiescent without an unreachable minority")
    _trouble(group, gone, rng)
    _run_until_quiescent(group, gone, "L9 a group is quiescent without an unreachable minority")
    for each in absent:
        _return(group, each, rng)
    if rng.random() < 0.3:
        _lose_the_leader(group, rng.choice(absent).id, rng)
    _run_until_quiescent(group, set(), "L10 members that return are brought up to date")


def _chosen(group: Group, rng: random.Random) -> list[_Absent]:
    leader = group.leader()
    assert leader is not None
    membership = leader.core.membership
    voters = sorted(membership.voters)
    minority = (len(voters) - 1) // 2
    chosen = rng.sample(voters, rng.randint(min(minority, rng.choice((0, 1, 1, 1))), minority))
    chosen += [learner for learner in sorted(membership.learners) if rng.random() < 0.7]
    return [_Absent(node, is_cut_off=rng.random() < 0.4) for node in chosen]


def _lose(group: Group, absent: list[_Absent], rng: random.Random) -> None:
    for each in absent:
        node = group.nodes[each.id]
        if rng.random() < 0.3:
            group.feed(node, Campaign())
        group.trace.note(each.id, "is cut off" if each.is_cut_off else "is down")
        if each.is_cut_off:
            for other in _others(group, each.id):
                group.broken |= {(each.id, other), (other, each.id)}
                tell_loss(group, other, rng, to=each.id)
        else:
            group.crash(node, rng)
        group.lose(each.id)
        tell_loss(group, each.id, rng)


def _others(group: Group, node: NodeId) -> list[NodeId]:
    return [other for other in group.nodes if other != node]


def _work(group: Group, rng: random.Random) -> None:
    """Propose entries that the absent members lack. The log may not have these entries any more when they
    return.
    """
    for _ in range(rng.choice((0, 0, 1, 4))):
        leader = group.leader()
        if leader is not None:
            group.propose(leader, rng.choice((1, 5)))
        group.run(rng.randint(1, 20))
    if rng.random() < 0.3:
        for node in [node for node in group.nodes.values() if node.is_up]:
            settled = min(node.core.commit_index, node.core.durable_index)
            if settled > node.disk.snapshot.index:
                node.disk.snapshot = EntryId(node.log.entries[settled].term, Index(settled))
                group.feed(node, LogTruncatedPrefix(node.disk.snapshot))


def _trouble(group: Group, gone: set[NodeId], rng: random.Random) -> None:
    """Inject at most one event into a group that is quiescent without some of its members."""
    leader = group.leader()
    assert leader is not None
    membership = leader.core.membership
    other = group.nodes[rng.choice(sorted(membership.members - gone))]
    match rng.randrange(6):
        case 0:
            _restart(group, other, gone, rng)
        case 1:
            group.feed(leader, TransferLeadership(other.id))
        case 2:  # the absent are reported again
            for lost in sorted(gone):
                tell_loss(group, lost, rng)
        case 3 if other is not leader:
            _cut_for_a_while(group, leader.id, other.id, rng)
        case 4:  # the absent are removed
            target = Membership(membership.voters - gone, membership.learners - gone)
            group.tokens += 1
            group.feed(leader, ChangeMembership(Token(group.tokens), target))
        case _:
            pass


def _restart(group: Group, node: Node, gone: set[NodeId], rng: random.Random) -> None:
    group.trace.note(node.id, "restarts")
    group.crash(node, rng)
    group.lose(node.id)
    tell_loss(group, node.id, rng)
    group.run(rng.choice((0, 1, 30)))
    group.restart_from(node.id, node.disk)
    tell_return(group, node.id, rng)
    for lost in sorted(gone):
        tell_loss(group, lost, rng, to=node.id)


def _cut_for_a_while(group: Group, one: NodeId, two: NodeId, rng: random.Random) -> None:
    """Cut one or both directions between two nodes; both ends notice, and the links work again later."""
    group.trace.note(one, f"is cut off from {two}")
    links = {link for link in ((one, two), (two, one)) if rng.random() < 0.7}
    group.broken |= links
    group.lose(one, two)
    for lost, to in ((one, two), (two, one)):
        tell_loss(group, lost, rng, to)
    group.run(rng.choice((5, 40, 100)))
    group.broken -= links
    for returned, to in ((one, two), (two, one)):
        tell_return(group, returned, rng, to)


def _return(group: Group, absent: _Absent, rng: random.Random) -> None:
    """Let a node return, sometimes with an empty disk; if it is no longer a member, close its replica, as a
    broker does.
    """
    node = group.nodes[absent.id]
    group.run(rng.choice((0, 0, 5, 60)))
    if absent.id not in group.checker.membership.members:
        node.is_up, node.is_retired = False, True
        return
    if absent.is_cut_off and rng.random() < 0.4:
        first = rng.choice(_others(group, absent.id))
        group.broken -= {(first, absent.id), (absent.id, first)}
        for returned, to in ((absent.id, first), (first, absent.id)):
            tell_return(group, returned, rng, to)
        group.run(rng.choice((30, 100)))
    group.broken = {link for link in group.broken if absent.id not in link}
    if absent.is_cut_off:
        for other in _others(group, absent.id):
            tell_return(group, other, rng, to=absent.id)
    else:
        group.restart_from(node.id, empty_disk(group, node) if rng.random() < 0.4 else node.disk)
    tell_return(group, absent.id, rng)


def _lose_the_leader(group: Group, returned: NodeId, rng: random.Random) -> None:
    """Crash the leader. At first only a member that has just returned notices the crash."""
    leader = group.leader()
    if leader is None or leader.id == returned:
        return
    group.trace.note(leader.id, "is down")
    group.crash(leader, rng)
    group.lose(leader.id)
    tell_loss(group, leader.id, rng, to=returned)
    group.run(60)
    tell_loss(group, leader.id, rng)
    group.run(60)
    group.restart_from(leader.id, leader.disk)
    tell_return(group, leader.id, rng)


def _run_until_quiescent(group: Group, gone: set[NodeId], rule: str) -> None:
    """Run the group until all members outside ``gone`` are quiescent with equal logs."""
    group.run(LATE_STEPS + 1)  # all nodes are told of their peers
    missing: Broken | None = None
    for _ in range(QUIESCENT_WITHIN_STEPS // LOOK_EVERY_STEPS):
        missing = disagreement(group, gone, may_have_tails=True)
        if missing is None:
            return
        group.run(LOOK_EVERY_STEPS)
    raise Broken(rule, str(missing))
