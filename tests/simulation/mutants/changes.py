"""Bugs in the core's changes of members and in its snapshots."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

CHANGES = (
    Mutant(
        "a learner gets entries that are not committed",
        "raftlog.core.appends:Appends.last_for",
        "if peer in member.voters",
        "if True",
        script="tests/paper/test_raft_membership.py",
    ),
    Mutant(
        "a commit sends nothing to learners",
        "raftlog.core.leader:Leader._advance_commit",
        "self._work_is_due = True",
        "pass",
        script="tests/paper/test_raft_membership.py",
    ),
    Mutant(
        "a learner counts as behind the leader's whole log",
        "raftlog.core.leader:Leader.receive_heartbeat_reply",
        "self._appends.last_for(sender)",
        "self._member.terms.last_index",
        script="tests/paper/test_raft_membership.py",
    ),
    Mutant(
        "a learner that becomes a voter still gets committed entries only",
        "raftlog.core.appends:Appends.last_for",
        "peer in member.voters",
        "peer in member.memberships.at(member.commit_index).all_voters",
        script="tests/paper/test_raft_membership.py",
    ),
    Mutant(
        "voters change in one step",
        "raftlog.core.membership:Membership.enter_joint",
        "if target.voters == self.voters:",
        "if True:",
    ),
    Mutant(
        "a change begins before the last one is committed",
        "raftlog.core.changes:Changes.refusal",
        "if self.open_index is not None:",
        "if False:",
    ),
    Mutant(
        "a new leader does not see that a change is open (the bug of 2015)",
        "raftlog.core.changes:Changes.__init__",
        "if newest.index > member.commit_index:",
        "if False:",
    ),
    Mutant(
        "a joint membership is never left",
        "raftlog.core.changes:Changes.advance",
        "if membership.is_joint:",
        "if False:",
    ),
    Mutant(
        "a membership counts once it is committed",
        "raftlog.core.membership:Memberships.append",
        "self._entries.append(MembershipEntry(index, membership))",
        "pass",
    ),
    Mutant(
        "a membership that was truncated stays in force",
        "raftlog.core.membership:Memberships.truncate",
        "self._entries[-1].index >= first_removed",
        "False",
    ),
    Mutant(
        "a log with a later start loses the membership at its start",
        "raftlog.core.membership:Memberships.truncate_prefix",
        "base = self.at(snapshot)",
        "base = self.base",
    ),
    Mutant(
        "joint elections are won by one majority",
        "raftlog.core.election:Candidate._count",
        "self._member.membership.halves",
        "self._member.membership.halves[:1]",
        script="tests/paper/test_raft_joint_membership.py",
    ),
    Mutant(
        "joint commits need the new majority only",
        "raftlog.core.peers:Peers.reached_by_quorum",
        "return min(reached_by_half)",
        "return reached_by_half[0]",
    ),
    Mutant(
        "a leader that was removed counts itself",
        "raftlog.core.peers:Peers.reached_by_quorum",
        "if counts_own else",
        "if True else",
    ),
    Mutant(
        "a snapshot replaces entries that are in the log",
        "raftlog.core.member:Member.may_install",
        "not self.terms.holds(snapshot)",
        "True",
        script="tests/paper/test_raft_snapshots.py",
    ),
    Mutant(
        "a snapshot replaces the log while a write is in flight",
        "raftlog.core.member:Member.may_install",
        "self.writes.all_finished",
        "True",
    ),
    Mutant(
        "a snapshot brings no membership",
        "raftlog.core.member:Member.restart",
        "Memberships(snapshot.index, membership, ())",
        "Memberships(snapshot.index, self.membership, ())",
    ),
    Mutant(
        "entries below the log start are sent",
        "raftlog.core.appends:Appends._replicate",
        "progress.state is SNAPSHOT or previous < snapshot.index",
        "False",
    ),
    Mutant(
        "a new leader leaves a joint membership only without committed entries after it",
        "raftlog.core.changes:Changes.__init__",
        "elif newest.membership.is_joint:",
        "elif newest.membership.is_joint and newest.index == member.commit_index:",
        script="tests/paper/test_raft_joint_membership.py",
    ),
)
