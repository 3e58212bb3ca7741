"""Bugs in how a backlog is applied, as after a crash."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

APPLIER = "tests/unit/node/test_applier.py"
QUEUE = "tests/unit/node/test_backlogs.py"
SCENARIOS = "tests/scenarios/node/test_backlogs.py"

BACKLOGS = (
    Mutant(
        "a whole backlog is applied in one turn of the loop",
        "raftlog.node.group.applier:Applier.apply_up_to",
        "if slice_bytes >= SLICE_BYTES:",
        "if False:",
        script=APPLIER,
    ),
    Mutant(
        "a slice is as large as its batches are",
        "raftlog.node.group.applier:Applier.apply_up_to",
        "slice_bytes += len(entry.batch.data) + BATCH_BYTES",
        "slice_bytes += BATCH_BYTES",
        script=APPLIER,
    ),
    Mutant(
        "a group goes on with its backlog in the same turn",
        "raftlog.node.group.raft_group:RaftGroup._carry_out",
        "self._recent.applied_index and not self._has_backlog:",
        "self._recent.applied_index:",
        script=SCENARIOS,
    ),
    Mutant(
        "a backlog ends after its first slice",
        "raftlog.node.group.raft_group:RaftGroup._apply_slice",
        "self._environment.apply_later(self.group_id)",
        "pass",
        script=SCENARIOS,
    ),
    Mutant(
        "a read is refused while the backlog is applied",
        "raftlog.node.group.leader_requests:LeaderRequests.confirm_read",
        "while self.applied_index < index and self._has_backlog:",
        "while False:",
        script=SCENARIOS,
    ),
    Mutant(
        "readers see what is committed before it is applied",
        "raftlog.node.group.raft_group:RaftGroup._apply",
        "min(commit_index, self.applied_index)",
        "commit_index",
        script=SCENARIOS,
    ),
    Mutant(
        "one group's backlog keeps the others waiting",
        "raftlog.node.backlogs:Backlogs._next",
        "next(iter(self._queue))",
        "next(reversed(self._queue))",
        script=QUEUE,
    ),
    Mutant(
        "the queue of backlogs stops at its first group",
        "raftlog.node.backlogs:Backlogs._next",
        "if len(self._queue) > 1:",
        "if False:",
        script=QUEUE,
    ),
    Mutant(
        "small batches bring no checkpoint about",
        "raftlog.node.group.applier:Applier.apply_up_to",
        "self._applied_batches += 1",
        "pass",
        script=APPLIER,
    ),
    Mutant(
        "a large state is written as often as a small one",
        "raftlog.node.group.applier:Applier.is_checkpoint_due",
        "max(CHECKPOINT_BATCHES, self._state_bytes // STATE_BYTES_PER_BATCH)",
        "CHECKPOINT_BATCHES",
        script=APPLIER,
    ),
    Mutant(
        "checkpoints that were asked for together are all written",
        "raftlog.node.group.applier:Applier.checkpoint_change",
        "if self.is_checkpoint_due else None",
        "",
        script=APPLIER,
    ),
)
