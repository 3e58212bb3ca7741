"""Checks the guarantees of Raft in one group, from outside, after every step.

The checker sees all disks at once and stores all committed entries. Whether a quorum has an entry is judged
by the disks and by the membership of the committing leader. Invariants are numbered as in
``docs/invariants.md``; ``log.Lineage`` checks every append for I3, so each check here only compares two
terms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import combinations, product

from raftlog.core.membership import Membership
from raftlog.core.messages import (
    AppendReply,
    HeartbeatReply,
    Message,
    RejoinResponse,
    VoteReply,
    VoteRequest,
)
from raftlog.core.ready import RefusalReason, Refused, Role, RoleChange, Write
from raftlog.types import Index, NodeId, Term
from verification.simulator.raft_level.log import Lineage, Log, Node
from verification.simulator.raft_level.rejoins import Rejoins
from verification.simulator.result import Broken


class Checker:
    """The checker of one group, with its history. Every method raises ``Broken`` for a violation."""

    def __init__(
        self, nodes: Mapping[NodeId, Node], initial_membership: Membership, lineage: Lineage
    ) -> None:
        """``nodes`` are the nodes to check; ``initial_membership`` is in force before the first entry."""
        self.nodes = nodes
        self.initial_membership = initial_membership
        self.leaders: dict[Term, NodeId] = {}
        self._votes: dict[tuple[Term, NodeId], NodeId] = {}
        self.committed = Log((), lineage)
        self.deciders = initial_membership  # the membership that committed the newest entry
        self._commit_terms: list[int] = []  # of the committing leader, for every entry
        self._rejoins = Rejoins(nodes)

    @property
    def membership(self) -> Membership:
        """The newest committed membership of the group."""
        return self.committed.membership_at(len(self.committed) - 1, self.initial_membership)

    def role(self, node: Node, change: RoleChange) -> None:
        """Check a new leader: it is the only one of its term (I2), its term is on disk (I7), and it has all
        entries committed in earlier terms (I4).
        """
        if change.role is not Role.LEADER:
            return
        where = f"node {node.id} leads in term {change.term}"
        known = self.leaders.setdefault(change.term, node.id)
        if known != node.id:
            raise Broken("I2 one leader a term", f"{where}, and so does {known}")
        if node.disk.hard_state.term < change.term:
            raise Broken("I7 write-ahead", f"{where}; durable is {node.disk.hard_state}")
        earlier = bisect_left(self._commit_terms, change.term)
        if not node.log.is_equal_up_to(earlier - 1, self.committed):
            raise Broken("I4 leader completeness", f"{where} and lacks some of {earlier} committed entries")
        if node.id not in node.core.membership.all_voters and len(node.log) <= len(self.committed):
            raise Broken("I16 only voters lead", where)

    def commit(self, node: Node, commit_index: Index) -> None:
        """Check a new commit index: committed entries never differ (I1) and are on the disks of a quorum
        (I6); the newest is of the leader's term (I8).
        """
        where = f"node {node.id} commits {commit_index} in term {node.core.term}"
        known = len(self.committed)
        shared = min(commit_index, known - 1)
        if commit_index >= len(node.log):
            raise Broken("I5 order of pointers", f"{where}, its log has {len(node.log)} entries")
        if not node.log.is_equal_up_to(shared, self.committed):
            raise Broken("I1 committed prefix", f"{where}: another entry was committed up to {shared}")
        if commit_index < known:
            return
        self.committed.extend(node.log.entries[known : commit_index + 1])
        self._commit_terms += [node.core.term] * (commit_index + 1 - known)
        self.deciders = node.log.membership_at(len(node.log), self.initial_membership)
        if node.core.role is Role.LEADER and node.log.entries[commit_index].term != node.core.term:
            raise Broken("I8 commits by counting its own term only", where)
        self.held(f"as {where}")

    def held(self, when: str) -> None:
        """Check that committed entries are still on the disks of a quorum (I6); called whenever a disk has
        changed.
        """
        newest = len(self.committed) - 1
        holders = {node.id for node in self.nodes.values() if self._holds(node, newest)}
        if not all(len(holders & half) > len(half) // 2 for half in self.deciders.halves):
            detail = f"{when}: {newest} is committed by {self.deciders}, durable on {sorted(holders)}"
            raise Broken("I6 durable quorum", detail)

    def _holds(self, node: Node, newest: int) -> bool:
        """Return whether the node has all committed entries. While the node rejoins, its lost logs count as
        its entries, too.
        """
        disk = node.disk
        lost = disk.lost if disk.has_lost else ()
        return any(log.is_equal_up_to(newest, self.committed) for log in (disk.log, *lost))

    def sent(self, node: Node, to: NodeId, message: Message) -> None:
        """Check a sent message: its facts are on the disk before (I7), a node votes once per term (I28), a
        rejoin needs a confirmation (I45).
        """
        disk = node.disk
        if isinstance(message, HeartbeatReply):
            self._rejoins.echoed(node, message)
        elif isinstance(message, AppendReply):
            if not message.accepted:
                return
            if disk.hard_state.term < message.term:
                raise Broken("I7 write-ahead", f"node {node.id} accepts in a term that is not durable")
            if node.core.term == message.term and not disk.log.is_equal_up_to(message.match_index, node.log):
                raise Broken("I7 write-ahead", f"node {node.id} accepts {message}, which is not durable")
            self._accept(node, message)
        elif isinstance(message, VoteReply | VoteRequest) and not message.is_pre_vote:
            is_said = message.granted if isinstance(message, VoteReply) else True
            if is_said and disk.hard_state.term < message.term:
                raise Broken("I7 write-ahead", f"node {node.id} says {message}; durable is {disk.hard_state}")
            if is_said:
                candidate = to if isinstance(message, VoteReply) else node.id
                known = self._votes.setdefault((message.term, node.id), candidate)
                # Once the candidate leads, another vote has no effect.
                # A member that has lost its vote may give it again.
                if candidate not in (known, self.leaders.get(message.term)):
                    raise Broken("I28 one vote a term", f"node {node.id} says {message}; voted for {known}")
        elif isinstance(message, RejoinResponse):
            self._rejoins.answered(node, to, message)

    def opened(self, node: Node) -> None:
        """Note that a new process of a replica has opened its log."""
        self._rejoins.began(node, len(self.committed))

    def forgot(self, node: NodeId) -> None:
        """Note that a node has a new disk. A candidacy of the node that won no election has ended (I28)."""
        for (term, voter), candidate in list(self._votes.items()):
            if voter == candidate == node and term not in self.leaders:
                del self._votes[term, voter]

    def deleted(self, node: NodeId) -> None:
        """Note that a replica was removed and its removal is committed: votes that it sends later have no
        effect (I28).
        """
        for key in [key for key in self._votes if key[1] == node]:
            del self._votes[key]

    def _accept(self, node: Node, reply: AppendReply) -> None:
        """Check that a follower that accepts an append has the leader's log up to the index in its response
        (I26).
        """
        leader = self.nodes.get(self.leaders.get(reply.term, node.id))
        if (
            leader is None
            or not leader.is_up
            or (leader.core.term, node.core.term) != (reply.term, reply.term)
        ):
            return
        if leader.core.role is Role.LEADER and not node.log.is_equal_up_to(reply.match_index, leader.log):
            raise Broken("I26 an accepted log is the leader's", f"node {node.id} says {reply}")

    def lead(self, node: Node, now: int, ticks_max: int) -> None:
        """Check that a leader that hears no majority steps down in time (I23)."""
        core = node.core
        if (
            core.role is not Role.LEADER
            or core.is_quiescent
            or not node.is_up
            or node.leads_by is not core.membership
        ):
            node.leads_by, node.leads_since = core.membership, now
            return
        since = now - ticks_max
        if node.leads_since > since:
            return
        heard = {peer for peer, at in node.heard.items() if at >= since} | {node.id}
        if not all(2 * len(half & heard) > len(half) for half in core.membership.halves):
            detail = f"node {node.id} in term {core.term} hears {sorted(heard)} of {core.membership}"
            raise Broken("I23 a leader without a majority steps down", detail)

    def refuse(self, node: Node, refused: Refused, now: int, election_ticks: int) -> None:
        """Check that a leader whose transfer of leadership does not complete accepts proposals again in time
        (I24).
        """
        waits = now - node.transfer_asked
        if refused.reason is RefusalReason.TRANSFERRING and waits > election_ticks + 1:
            detail = f"node {node.id} refuses {refused.token}, {waits} steps after it was asked"
            raise Broken("I24 a transfer ends", detail)

    def write(self, node: Node, write: Write) -> None:
        """Check that a leader changes the membership in single safe steps: consecutive memberships share
        quorums (I16).
        """
        log, initial_membership = node.log, node.disk.initial_membership
        changes = [span for span in write.spans if span.membership is not None]
        if node.core.role is not Role.LEADER:
            return
        for span in changes:
            assert span.membership is not None
            before = log.membership_at(span.first - 1, initial_membership)
            if not intersect(before, span.membership):
                raise Broken("I16 quorums intersect", f"node {node.id}: {before}, then {span.membership}")
            earlier = [index for index in log.changes if index < span.first]
            if earlier and earlier[-1] > node.core.commit_index:
                raise Broken("I16 one change at a time", f"node {node.id}: {earlier[-1]} and {span.first}")

    def step(self, node: Node) -> None:
        """Check that a core, its log and its disk agree with one another, after every step (I5, I16)."""
        core, log = node.core, node.log
        commit_index, durable_index, last = core.commit_index, core.writes.durable_index, len(log) - 1
        if core.terms.last_index != last:
            raise Broken(
                "I5 order of pointers", f"node {node.id}: last is {core.last}, its log ends at {last}"
            )
        in_force = log.membership_at(last, node.disk.initial_membership)
        if core.membership is not in_force and core.membership != in_force:
            raise Broken("I16 the newest membership counts", f"node {node.id}: {in_force} is in its log")
        if not (node.disk.snapshot.index <= commit_index <= last and durable_index <= last):
            numbers = f"snapshot {node.disk.snapshot}, commit {commit_index}, durable {durable_index}, {last}"
            raise Broken("I5 order of pointers", f"node {node.id}: {numbers}")
        if commit_index < node.commit_seen or core.term < node.term_seen:
            detail = f"node {node.id}: commit {node.commit_seen} to {commit_index}, term {node.term_seen}"
            raise Broken("I5 monotonic term and commit", f"{detail} to {core.term}")
        node.commit_seen, node.term_seen = commit_index, core.term
        if not node.disk.log.is_equal_up_to(durable_index, log):
            raise Broken("I7 write-ahead", f"node {node.id} takes {durable_index} for durable, and it is not")
        if core.is_quiescent:
            self._quiesce(node)

    def _quiesce(self, node: Node) -> None:
        """Check that a leader becomes quiescent once a quorum and all reachable members have all entries
        (I29).
        """
        if node.writes:
            raise Broken("I9 no failed assertion", f"node {node.id} is quiescent while it writes")
        if node.core.role is not Role.LEADER:
            return
        last, membership = len(node.log) - 1, node.core.membership
        holders = {
            member
            for member in membership.members
            if self.nodes[member].disk.log.is_equal_up_to(last, node.log)
        }
        lacking = membership.members - node.unreachable - holders
        if lacking or not all(2 * len(half & holders) > len(half) for half in membership.halves):
            detail = f"node {node.id} is quiescent, its log ends at {last}, {sorted(holders)} hold it"
            raise Broken("I29 quiescent only with equal logs", f"{detail}; {sorted(lacking)} are reachable")


@cache
def intersect(one: Membership, other: Membership) -> bool:
    """Return whether every quorum of one membership shares a voter with every quorum of the other, by
    enumeration.
    """
    return all(first & second for first, second in product(_quorums(one), _quorums(other)))


def _quorums(membership: Membership) -> Iterable[frozenset[NodeId]]:
    """Return the smallest sets of voters that are a quorum."""
    majorities = [combinations(sorted(half), len(half) // 2 + 1) for half in membership.halves]
    return [frozenset().union(*chosen) for chosen in product(*majorities)]
