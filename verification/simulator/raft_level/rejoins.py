"""Checks from outside that a ``RejoinResponse`` keeps its promises (I45).

A replica that begins on an empty disk may have forgotten votes and acknowledgements. It votes and
acknowledges again after a leader's ``RejoinResponse``. From then on no forgotten vote or acknowledgement may
decide anything: no other voter of either half may be a candidate of a later term that needs a forgotten vote,
and no committed entry may be above the end that the response names. An echo of a leader counts only if it is
sent after the replica began.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.core.messages import NO_ROUND, HeartbeatReply, RejoinResponse
from raftlog.types import NodeId, Term
from verification.simulator.raft_level.log import Node
from verification.simulator.result import Broken


class Rejoins:
    """The replicas that began without their votes, and for each the members that have echoed a
    leader since.
    """

    def __init__(self, nodes: Mapping[NodeId, Node]) -> None:
        self._nodes = nodes
        self._moment = 0  # counts incarnations and echoes
        self._was_in_term: dict[tuple[Term, NodeId], int] = {}  # the newest moment
        self._began: dict[int, tuple[int, int]] = {}  # by incarnation: the moment, and the committed entries
        self._confirmed: dict[tuple[Term, NodeId], int] = {}  # the newest moment, with all its votes
        self._checked: set[tuple[Term, int]] = set()

    def began(self, node: Node, committed: int) -> None:
        """Note a core that was opened while ``committed`` entries were committed. It rejoins if its disk has
        lost votes.
        """
        if node.core.rejoining:
            self._moment += 1
            self._began[node.core.rejoining] = self._moment, committed

    def echoed(self, sender: Node, reply: HeartbeatReply) -> None:
        """Note that a member is in the leader's term. The echo counts if the member has lost no votes."""
        if reply.round != NO_ROUND:
            self._moment += 1
            self._was_in_term[reply.term, sender.id] = self._moment
            if not reply.rejoining:
                self._confirmed[reply.term, sender.id] = self._moment

    def answered(self, leader: Node, to: NodeId, response: RejoinResponse) -> None:
        """Check a leader's response that names the end of the log from which a replica may vote and
        acknowledge again.

        Later responses repeat the first one.
        """
        if (response.term, response.rejoining) in self._checked:
            return
        self._checked.add((response.term, response.rejoining))
        began, committed = self._began[response.rejoining]
        where = f"node {leader.id} answers node {to}: {response}"
        if response.last < committed - 1:
            raise Broken("I45 a rejoin is confirmed", f"{where}; {committed - 1} was committed before")
        membership, term = leader.core.membership, response.term
        voters = membership.all_voters
        confirm = {voter for voter in voters if self._confirmed.get((term, voter), 0) > began} | {leader.id}
        if not all(2 * len(half & confirm) > len(half) for half in membership.halves):
            raise Broken("I45 a rejoin is confirmed", f"{where}; {sorted(confirm)} confirm, of {membership}")
        if to in voters:
            others = voters - {to, leader.id}
            unseen = {voter for voter in others if self._was_in_term.get((term, voter), 0) <= began}
            if candidates := [voter for voter in sorted(unseen) if self._may_lead(voter)]:
                raise Broken("I45 a rejoin is confirmed", f"{where}; {candidates} may be candidates")

    def _may_lead(self, voter: NodeId) -> bool:
        """Return whether a voter may be a candidate.

        A voter that rejoins is not a candidate: its candidacies have ended with its former disk.
        """
        return not self._nodes[voter].disk.hard_state.is_rejoining
