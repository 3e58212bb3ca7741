"""Reports unreachable and reachable peers to bare cores, in place of a host.

Decides: when a peer is reported to a node as unreachable or reachable, as ``raftlog.node.leaderless_groups``
does: late, perhaps twice, and by the state of the peer at that moment. Leaves to others: which nodes are down
(``faults``, ``absence``).
"""

from __future__ import annotations

import random
from functools import partial

from raftlog.core.inputs import PeerReachable, PeerUnreachable
from raftlog.types import NodeId
from verification.simulator.raft_level.group import Group
from verification.simulator.raft_level.log import Node

LATE_STEPS = 20


def tell_loss(group: Group, lost: NodeId, rng: random.Random, to: NodeId | None = None) -> None:
    """Report to all other nodes, or to ``to``, that a node is lost: to each at a random time, and to some
    twice.
    """
    for node in _others(group, lost, to):
        for _ in range(rng.choice((1, 1, 1, 2))):
            group.later(rng.randint(1, LATE_STEPS), partial(_tell, group, node, lost, is_loss=True))


def tell_end(group: Group, lost: NodeId) -> None:
    """Report to all other nodes at once that the process of the node ``lost`` has ended."""
    for node in _others(group, lost, None):
        group.feed(node, PeerUnreachable(lost))


def tell_return(group: Group, returned: NodeId, rng: random.Random, to: NodeId | None = None) -> None:
    """Report to all other nodes, or to ``to``, that frames of a node arrive again: to each at a
    random time.
    """
    for node in _others(group, returned, to):
        group.later(rng.randint(1, LATE_STEPS), partial(_tell, group, node, returned, is_loss=False))


def _others(group: Group, peer: NodeId, to: NodeId | None) -> list[Node]:
    nodes = group.nodes.values()
    return [node for node in nodes if node.is_up and node.id != peer and to in (None, node.id)]


def _tell(group: Group, node: Node, peer: NodeId, *, is_loss: bool) -> None:
    """Report the state of a peer to a node. A loss is reported even if the peer has returned since, perhaps
    as a new process.
    """
    if group.nodes[node.id] is not node or not node.is_up:
        return
    if is_loss:
        group.feed(node, PeerUnreachable(peer))
    returned = group.nodes[peer]
    if returned.is_up and not returned.disk.is_older_copy and (peer, node.id) not in group.broken:
        group.feed(node, PeerReachable(peer))
