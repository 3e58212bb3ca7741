"""Bugs in how replicas come, go, and are recovered."""

from __future__ import annotations

from tests.simulation.mutants.plant import Edit, Mutant

MOVING = "tests/unit/partitions/test_moving.py"
STEPS = "tests/unit/partitions/test_reassignment.py"

MOVES = (
    Mutant(
        "a replica is deleted while it still votes",
        "partitions.departures:Departures.may_delete",
        "if may_go else None",
        "",
        more=(
            Edit(
                "partitions.manager:PartitionManager._missing",
                "wanted = me in partition.holders",
                "wanted = me in partition.wanted",
            ),
        ),
    ),
    Mutant(
        "what a former life promised is not on the disk when the next one speaks",
        "partitions.openings:Openings.open",
        "_make_durable(log)",
        "pass",
        script="tests/unit/partitions/test_openings.py",
    ),
    Mutant(
        "what a deleted replica promised is forgotten",
        "partitions.openings:Openings.bury",
        "tombstones.bury(self.filesystem, data, group_id, directory, self.clock, leader, me)",
        "pass",
        script=MOVING,
    ),
    Mutant(
        "a deleted replica whose vote is lost may vote again",
        "raftlog.storage.tombstones:bury",
        "HardState(leader.term, node_id)",
        "HardState(leader.term, None)",
        script="tests/unit/storage/test_tombstones.py",
    ),
    Mutant(
        "a deleted replica's vote is forgotten where an earlier life has known its term",
        "raftlog.storage.tombstones:bury",
        "state if state.term >= kept.hard_state.term",
        "state if state.term > kept.hard_state.term",
        script="tests/unit/storage/test_tombstones.py",
    ),
    Mutant(
        "a log that a recovery has given up comes back",
        "partitions.openings:Openings._keep_pace",
        "self.filesystem.remove_tree(directory)",
        "pass",
        script=MOVING,
    ),
    Mutant(
        "a broker with another disk votes as before",
        "partitions.controller.machine:_register",
        'before.disk_id not in ("", command.disk_id)',
        'before.disk_id == "never"',
        script=MOVING,
    ),
    Mutant(
        "a learner votes before it has caught up",
        "partitions.reassignment:next_step",
        "view.learner_match.get(node, -1) >= view.goal",
        "view.learner_match.get(node, -1) >= -1",
        script=STEPS,
    ),
    Mutant(
        "a replica learns before its broker is prepared",
        "partitions.reassignment:next_step",
        "arriving = strangers & view.prepared",
        "arriving = strangers",
        script=STEPS,
    ),
    Mutant(
        "a report that comes late counts",
        "partitions.controller.replica_commands:replicas_changed",
        "command.membership_index < partition.membership_index",
        "command.membership_index < -1",
        script="tests/unit/partitions/controller/test_replica_commands.py",
    ),
    Mutant(
        "the shortest log survives",
        "partitions.recovery:survey",
        "survivor = max(",
        "survivor = min(",
        script="tests/unit/partitions/test_recovery.py",
    ),
    Mutant(
        "what a death has left of a replica that was going stays",
        "partitions.manager:PartitionManager._missing",
        "elif partition.partition in left:",
        "elif False:",
        script="tests/simulation/test_crash_points.py::test_a_death_while_a_replica_is_removed_is_survived",
    ),
    Mutant(
        "who is wanted again goes by what was said before",
        "partitions.manager:PartitionManager._reconfigure",
        "held.let_go = held.let_go if is_leaving else None",
        "pass",
        script="tests/unit/partitions/test_moving.py::test_who_is_wanted_again_does_not_go_whatever_the_leader_has_said",
    ),
)
