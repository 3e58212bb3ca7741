"""The judge of a Raft group in memory: looks from outside, after every step, at what Raft promises.

It sees all disks at once and remembers what was ever committed. Quorums are counted by the membership
that the committing leader went by, on the disks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import combinations, product

from raftlog.core.entries import EntryKind
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendReply, Message, VoteReply, VoteRequest
from raftlog.core.ready import Role, RoleChange, Write
from raftlog.types import Index, NodeId, Term
from tests.helpers.raft_disk import Entry, Node, membership_of


class Judge:
    """What one group has promised so far. Every method fails where a promise is broken."""

    def __init__(self, nodes: Mapping[NodeId, Node], birth: Membership) -> None:
        """``nodes`` is looked at again and again; ``birth`` is the membership before the first entry."""
        self.nodes = nodes
        self.birth = birth
        self.leaders: dict[Term, NodeId] = {}
        self.committed: list[Entry] = []
        self.deciders = birth  # the membership by which the newest entry was committed
        self.changes = 0  # memberships committed

    @property
    def membership(self) -> Membership:
        """The newest that is committed."""
        return membership_of(self.birth, self.committed)

    def judge_role(self, node: Node, change: RoleChange) -> None:
        """One leader a term, with its term on disk and everything in its log that was committed."""
        if change.role is not Role.LEADER:
            return
        assert self.leaders.setdefault(change.term, node.id) == node.id, f"two leaders in term {change.term}"
        assert node.disk.hard_state.term >= change.term, "a leader whose term is not durable"
        assert node.log[: len(self.committed)] == self.committed, "a leader lacks committed entries"
        assert node.id in node.core.membership.all_voters or len(node.log) > len(self.committed), (
            "a leader that does not vote"
        )

    def judge_commit(self, node: Node, commit_index: Index) -> None:
        """Committed prefixes are one another's beginnings, and on the disks of a quorum."""
        prefix = node.log[: commit_index + 1]
        assert len(prefix) == commit_index + 1, "committed more than the log holds"
        known = len(self.committed)
        assert prefix[:known] == self.committed[: len(prefix)], "committed prefixes differ"
        if len(prefix) > known:
            self.changes += sum(entry.membership is not None for entry in prefix[known:])
            self.committed = prefix
            self.deciders = membership_of(self.birth, node.log)
            assert self._is_held(), "committed without a durable quorum"

    def judge_commits_held(self, node: Node) -> None:
        """What is committed never leaves a quorum's disks: looked at whenever a disk has changed."""
        assert self._is_held(), f"an acknowledged record was lost by node {node.id}"

    def judge_promise(self, node: Node, message: Message) -> None:
        """Write-ahead: what is said to others is on the disk."""
        disk = node.disk
        if isinstance(message, AppendReply) and message.accepted:
            assert disk.hard_state.term >= message.term, "accepted in a term that is not durable"
            if node.core.term == message.term:
                held = disk.log[: message.match_index + 1]
                assert held == node.log[: message.match_index + 1], "accepted what is not durable"
                assert len(held) == message.match_index + 1, "accepted what is not durable"
        elif (isinstance(message, VoteReply) and message.granted and not message.is_pre_vote) or (
            isinstance(message, VoteRequest) and not message.is_pre_vote
        ):
            assert disk.hard_state.term >= message.term, "a vote that may be forgotten"

    def judge_write(self, node: Node, write: Write) -> None:
        """The membership in force is the newest in the log; a leader changes it one safe step at a time."""
        log = node.log
        if write.truncate_from is not None or any(span.membership for span in write.spans):
            in_force = membership_of(node.disk.birth, log)
            assert node.core.membership == in_force, "not the newest membership of the log"
        if node.core.role is not Role.LEADER:
            return
        for span in write.spans:
            if span.membership is not None:
                before = membership_of(node.disk.birth, log[: span.first])
                assert intersect(before, span.membership), f"quorums of {before} and {span.membership}"
                earlier = [index for index in range(span.first) if log[index].membership is not None]
                assert not earlier or earlier[-1] <= node.core.commit_index, "two changes are pending"

    def judge(self, node: Node) -> None:
        """What holds between a core, its log and its disk at all times."""
        core = node.core
        assert core.last.index == len(node.log) - 1
        assert node.disk.snapshot.index <= core.commit_index <= core.last.index
        assert core.commit_index >= node.commit_seen, "the commit index went back"
        node.commit_seen = core.commit_index
        assert core.durable_index <= core.last.index
        assert node.disk.log[: core.durable_index + 1] == node.log[: core.durable_index + 1], "not durable"
        if core.is_asleep:
            assert not node.writes

    def judge_logs(self) -> None:
        """Two logs that hold the same entry hold the same entries before it (log matching)."""
        nodes = list(self.nodes.values())
        for first, second in product(nodes, nodes):
            shared = min(len(first.log), len(second.log))
            same = [first.log[index] == second.log[index] for index in range(shared)]
            if any(same):
                newest = max(index for index in range(shared) if same[index])
                assert all(same[: newest + 1]), f"logs of {first.id} and {second.id} do not match"

    def _is_held(self) -> bool:
        committed = self.committed
        holders = {node.id for node in self.nodes.values() if node.disk.log[: len(committed)] == committed}
        return all(len(holders & half) > len(half) // 2 for half in self.deciders.halves)


@cache
def intersect(one: Membership, other: Membership) -> bool:
    """Whether every quorum of one shares a voter with every quorum of the other: looked at one by one."""
    return all(first & second for first, second in product(_quorums(one), _quorums(other)))


def _quorums(membership: Membership) -> Iterable[frozenset[NodeId]]:
    """The smallest sets of voters that decide."""
    majorities = [combinations(sorted(half), len(half) // 2 + 1) for half in membership.halves]
    return [frozenset().union(*chosen) for chosen in product(*majorities)]


def is_change(entry: Entry) -> bool:
    """Whether the entry changes the membership."""
    return entry.kind is EntryKind.MEMBERSHIP
