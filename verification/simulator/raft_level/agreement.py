"""Checks that all members of a group hold equal logs and are quiescent."""

from __future__ import annotations

from collections.abc import Set

from raftlog.types import Index, NodeId
from verification.simulator.raft_level.group import Group
from verification.simulator.raft_level.log import Node
from verification.simulator.result import Broken


def disagreement(
    group: Group, absent: Set[NodeId] = frozenset(), *, may_have_tails: bool = False
) -> Broken | None:
    """Describe the first difference between members that are not absent; None if they agree.

    With ``may_have_tails``, a follower may have uncommitted entries after the end of the leader's log.
    """
    leader = group.leader()
    if leader is None or leader.id in absent:
        return Broken("L3 replicas agree in the end", "there is no leader")
    core = leader.core
    if core.membership.is_joint:
        return Broken("L3 replicas agree in the end", f"{core.membership} is never left")
    for member in sorted(core.membership.members - absent):
        found = _member(group.nodes[member], leader, may_have_tails=may_have_tails)
        if found is not None:
            return found
    if group.on_the_wire and not absent:
        return Broken("L4 idle members are quiescent", f"{group.on_the_wire} messages are under way")
    return None


def _member(node: Node, leader: Node, *, may_have_tails: bool) -> Broken | None:
    last = Index(len(leader.log) - 1)
    numbers = (len(node.log) - 1, len(node.disk.log) - 1, node.core.commit_index)
    equal = node.log.is_equal_up_to(last, leader.log) and node.disk.log.is_equal_up_to(last, leader.log)
    is_longer = may_have_tails and node.core.commit_index == last
    if not equal or (numbers != (last, last, last) and not is_longer):
        detail = f"node {node.id}: {numbers}, the leader's log ends at {last}"
        return Broken("L3 replicas agree in the end", detail)
    if not node.core.is_quiescent:
        return Broken("L4 idle members are quiescent", f"node {node.id} is active")
    if node.reads:
        return Broken("L5 every request is answered", f"node {node.id} keeps {sorted(node.reads)}")
    return None
