"""Bugs in what a replica knows of its group's members, and in snapshots."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

SCENARIO = "tests/scenarios/node/test_memberships.py"
FILES = "tests/unit/storage/test_members.py"
SNAPSHOTS = "tests/scenarios/node/test_snapshots.py"
SNAPSHOT_FILES = "tests/unit/storage/test_snapshots.py"

MEMBERS = (
    Mutant(
        "a replica reports that it has rejoined before that is durable",
        "raftlog.core.member:Member.rejoining_told",
        "0 if self.writes.hard_state_is_durable else self._rejoined_from",
        "0",
        script="tests/unit/core/test_rejoin.py",
    ),
    Mutant(
        "a replica that has rejoined still reports that it rejoins",
        "raftlog.core.member:Member._save_vote",
        "if self.writes.hard_state_is_durable:",
        "if False:",
        script="tests/unit/core/test_rejoin.py",
    ),
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
    ),
    Mutant(
        "a follower treats a membership as data",
        "raftlog.node.codec:spans_of",
        "if membership is not None:",
        "if False:",
        script=SCENARIO,
    ),
    Mutant(
        "a change counts as finished before it is committed",
        "raftlog.node.group.membership_watch:MembershipWatch._is_committed",
        "return self._core.commit_index >= self._core.membership_index",
        "return True",
        script=SCENARIO,
    ),
    Mutant(
        "a change counts on a voter that the new leader has not heard",
        "raftlog.core.peers:Peers.match_index",
        "progress.is_heard and not progress.rejoining",
        "not progress.rejoining",
        script="tests/paper/test_raft_joint_membership.py",
    ),
    Mutant(
        "a learner becomes a voter without a reply since its connection broke",
        "raftlog.core.changes:Changes._enough_know",
        "if not progress[node].is_out_of_contact",
        "if True",
        script="tests/paper/test_raft_joint_membership.py",
    ),
    Mutant(
        "the log start moves before the membership there is durable",
        "raftlog.storage.members:LogMembers.move_start",
        "self.flush()",
        "pass",
    ),
    Mutant(
        "the membership before the log start is dropped too early",
        "raftlog.storage.members:LogMembers.keep_base",
        "[base] if present is None else [present, base]",
        "[base]",
    ),
    Mutant(
        "memberships of truncated entries stay",
        "raftlog.storage.log_changes:LogChanges.cut",
        "self._members.truncate_suffix(first_removed)",
        "pass",
    ),
    Mutant(
        "a snapshot's log start is not synced before the old log goes",
        "raftlog.storage.durable_state:DurableState.restart",
        "self._write(sync=True)",
        "self._write(sync=False)",
    ),
    Mutant(
        "a snapshot's state is not kept before the log begins there",
        "raftlog.storage.log_changes:LogChanges._install",
        "self.states.save(snapshot, state)",
        "self.states.keep(snapshot, state)",
    ),
    Mutant(
        "entries that conflict with a snapshot stay in their segments",
        "raftlog.storage.log_changes:LogChanges.install_change",
        "if self._last >= snapshot.index:",
        "if False:",
    ),
    Mutant(
        "terms from before a snapshot conflict with later entries",
        "raftlog.storage.recovery:_Opening.run",
        "self.epochs.clear()",
        "pass",
        script=SNAPSHOT_FILES,
    ),
    Mutant(
        "retention deletes entries above the newest state",
        "raftlog.node.group.applier:Applier.prefix_change",
        "log.prefix_change(sound[0])",
        "log.prefix_change(first_kept)",
        script="tests/unit/node/test_applier.py",
    ),
    Mutant(
        "a snapshot's checksums are not compared",
        "raftlog.node.group.snapshot_transfer:SnapshotTransfer._fetch_chunk",
        "if crc32c(payload) != chunk.chunk_checksum or ",
        "if ",
        more=(
            Edit(
                "raftlog.node.group.snapshot_transfer:SnapshotTransfer._fetch_from",
                "if crc32c(self._received) != self._manifest[1]:",
                "if False:",
            ),
        ),
        script=SNAPSHOTS,
    ),
    Mutant(
        "a transfer restarts whenever it is offered again",
        "raftlog.node.group.snapshot_transfer:SnapshotTransfer.want",
        "if self._request is None or self._request.snapshot != request.snapshot:",
        "if True:",
        script=SNAPSHOTS,
    ),
)
