"""Lets nodes start on an older copy of their disk; for a while they do not know that the disk is older.

Until a peer reports this, such a node acts on messages that it gets, because links from its peers may already
work. The peers know of a newer disk, and ignore the messages of the node. After the report the node starts
again, and rejoins with the entries on its disk.

Decides: when disks are copied, which copy takes the place of a disk, and when the node learns that its disk
is older. Leaves to others: whether the group survives the loss (``faults``).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from raftlog.types import NodeId
from verification.simulator.raft_level.group import Group
from verification.simulator.raft_level.log import Disk, Node
from verification.simulator.raft_level.reachability import tell_end, tell_return

OLDER_COPY: Final = "older copy"
OLDER_TAIL: Final = "after a truncation"
COPIES_MAX: Final = 6
COPY_STEPS: Final = 20  # between two copies that are made at any time
UNKNOWN_STEPS: Final = 40  # a node knows by then that its disk is an older copy, if it is up
AGAIN_STEPS: Final = 5


class OlderCopies:
    """The copies of the disks of one group; for each node, the newest copy is last."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._made: deque[tuple[NodeId, Disk]] = deque(maxlen=COPIES_MAX)

    def step(self) -> None:
        """Copy the disks of all nodes, one node after another."""
        turn, is_no_turn = divmod(self._group.now, COPY_STEPS)
        if not is_no_turn:
            nodes = list(self._group.nodes.values())
            self.make(nodes[turn % len(nodes)])

    def make(self, node: Node) -> None:
        """Copy a node's disk. Right before a truncation, the copy has entries that are never committed."""
        self._made.append((node.id, node.disk.image()))

    def restore(self, rng: random.Random, may_lose: Callable[[Node], bool]) -> bool:
        """Start a node on an older copy of its disk. Returns False if there is no such copy."""
        able = self._able(may_lose)
        if able:
            self._start(*rng.choice(able), rng)
        return bool(able)

    def restore_of(self, node_id: NodeId, rng: random.Random, may_lose: Callable[[Node], bool]) -> None:
        """Start this node on the newest copy of its disk, if there is one."""
        able = [(node, copy) for node, copy in self._able(may_lose) if node.id == node_id]
        if able:
            self._start(*able[-1], rng)

    def heal(self, rng: random.Random) -> None:
        """Let every node learn whether its disk is an older copy."""
        for node in list(self._group.nodes.values()):
            if node.disk.is_older_copy:
                self._begin_again(node, rng)

    def _able(self, may_lose: Callable[[Node], bool]) -> list[tuple[Node, Disk]]:
        nodes = self._group.nodes
        able = [(nodes[node_id], copy) for node_id, copy in self._made]
        return [
            (node, copy) for node, copy in able if node.is_up and _is_older(copy, node) and may_lose(node)
        ]

    def _start(self, node: Node, copy: Disk, rng: random.Random) -> None:
        group, disk = self._group, copy.image()
        group.crash(node, rng)
        group.forget_messages(node.id)
        group.checker.forgot(node.id)
        disk.lost, disk.is_older_copy = node.disk.lost_with_it, True
        group.trace.note(node.id, "has an older copy of its disk")
        group.restart_from(node.id, disk)
        tell_end(group, node.id)
        group.later(rng.randint(1, UNKNOWN_STEPS), lambda: self._tell(node.id, disk, rng))

    def _tell(self, node_id: NodeId, disk: Disk, rng: random.Random) -> None:
        """Report to a node that its disk is an older copy, unless the node has got another disk since."""
        node = self._group.nodes[node_id]
        if node.disk is disk and not node.is_up:
            self._group.later(AGAIN_STEPS, lambda: self._tell(node_id, disk, rng))
        elif node.disk is disk:
            self._begin_again(node, rng)
            self._group.restart_from(node_id, disk)
            tell_return(self._group, node_id, rng)

    def _begin_again(self, node: Node, rng: random.Random) -> None:
        if node.is_up:
            self._group.crash(node, rng)
        self._group.lose(node.id)
        node.disk.begin_again()
        self._group.trace.note(node.id, "knows that its disk is an older copy")


def _is_older(copy: Disk, node: Node) -> bool:
    """Return whether the node's disk has changed since the copy was made.

    False if the copy knows no other voter: then the node serves the copy as it is.
    """
    known = [copy.log.entries[index].membership for index in copy.log.changes]
    memberships = [copy.initial_membership, *filter(None, known)]
    if any(half == {node.id} for membership in memberships for half in membership.halves):
        return False
    now = node.disk
    is_equal = len(copy.log) == len(now.log) and copy.log.entries[-1:] == now.log.entries[-1:]
    return not is_equal or copy.hard_state != now.hard_state
