"""Bugs in what a replica knows of its group's members."""

from __future__ import annotations

from tests.simulation.mutants.plant import Mutant

SCENARIO = "tests/scenarios/node/test_memberships.py"
FILES = "tests/unit/storage/test_members.py"

MEMBERS = (
    Mutant(
        "a joint membership commits with one of its majorities",
        "raftlog.core.peers:Peers.reached_by_quorum",
        "return min(reached_by_half)",
        "return max(reached_by_half)",
        script="tests/paper/test_raft_joint_membership.py",
    ),
    Mutant(
        "learners are counted",
        "raftlog.core.peers:Peers._counted",
        "for half in self._member.membership.halves",
        "for half in (self._member.membership.members,)",
        script="tests/paper/test_raft_membership.py",
    ),
    Mutant(
        "a restart forgets the memberships in the log",
        "raftlog.storage.segmented_log:SegmentedLog.restored",
        "memberships=self._members.in_log()",
        "memberships=()",
        script=SCENARIO,
    ),
    Mutant(
        "a follower takes a membership for data",
        "raftlog.node.codec:spans_of",
        "if membership is not None:",
        "if False:",
        script=SCENARIO,
    ),
    Mutant(
        "a change counts as finished before it is committed",
        "raftlog.node.membership_watch:MembershipWatch._is_committed",
        "return self._core.commit_index >= self._core.membership_index",
        "return True",
        script=SCENARIO,
    ),
    Mutant(
        "the log start moves before the disk knows who takes part there",
        "raftlog.storage.members:LogMembers.move_start",
        "self.flush()",
        "pass",
        script=FILES,
    ),
    Mutant(
        "the membership before the log start is dropped too early",
        "raftlog.storage.members:LogMembers.keep_base",
        "[base] if present is None else [present, base]",
        "[base]",
        script=FILES,
    ),
    Mutant(
        "memberships outlive the entries that were cut",
        "raftlog.storage.segmented_log:SegmentedLog.truncate_suffix",
        "self._members.truncate_suffix(first_removed)",
        "pass",
        script=FILES,
    ),
)
