"""Bugs in how replicas come, go, and are recovered."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

MOVING = "tests/scenarios/partitions/test_moving.py"
STEPS = "tests/unit/partitions/test_reassignment.py"

PLANS = "tests/unit/partitions/metadata/test_move_planner.py"
COMMANDS = "tests/unit/partitions/metadata/test_replica_commands.py"
DEPARTURES = "tests/scenarios/partitions/test_deletion.py"
REASSIGNER = "tests/scenarios/partitions/test_reassigner.py"
OPENINGS = "tests/unit/partitions/test_opener.py"

MOVES = (
    Mutant(
        "an added replica asks only the replicas that the metadata list whether it may begin empty",
        "partitions.hosting.deletion:DeletePermits.ask",
        "partition.possible_replicas",
        "partition.all_replicas",
        script="tests/scenarios/partitions/test_moving.py",
    ),
    Mutant(
        "an unsafe recovery asks only the replicas that the metadata list",
        "partitions.reassignment.admin:PartitionAdmin.survey",
        "partition.possible_replicas",
        "partition.all_replicas",
        script="tests/scenarios/partitions/test_moving.py",
    ),
    Mutant(
        "a partition is recovered from a broker of a changed target below the feature level",
        "partitions.metadata.replica_commands:recovered_unsafely",
        "image.feature_level >= FORGETTING",
        "True",
        script="tests/unit/partitions/metadata/test_replica_commands.py",
    ),
    Mutant(
        "a change begins although no majority of the new voters answers",
        "partitions.reassignment.reassigner:Reassigner._can_commit",
        "if membership.voters == before:",
        "if True:",
        script="tests/scenarios/partitions/test_moving.py",
    ),
    Mutant(
        "a broker whose metadata is not confirmed says that it has no replica",
        "partitions.hosting.replica_manager:ReplicaManager.directory_of",
        "if directory is None and not self._may_begin:",
        "if False:",
        script=DEPARTURES,
    ),
    Mutant(
        "a learner has caught up with the log of its start",
        "partitions.reassignment.reassigner:Reassigner._look",
        "move.goal = group.last_index",
        "pass",
        script="tests/scenarios/partitions/test_reassigner.py",
    ),
    Mutant(
        "a replica is deleted while it still votes",
        "partitions.hosting.deletion:DeletePermits.ask",
        "return answer.is_permitted",
        "return True",
        more=(
            Edit(
                "partitions.hosting.replica_manager:ReplicaManager._host_missing",
                "wanted = me in partition.all_replicas",
                "wanted = me in partition.target_replicas",
            ),
        ),
    ),
    Mutant(
        "a log discarded by a recovery is used again",
        "partitions.hosting.opener:ReplicaOpener._put_away",
        "self.folders.put_away(directory, name)",
        "pass",
        script=MOVING,
    ),
    Mutant(
        "a broker with another disk votes as before",
        "partitions.metadata.broker_commands:register",
        'before.disk_id not in ("", command.disk_id)',
        'before.disk_id == "never"',
        script=MOVING,
    ),
    Mutant(
        "a learner votes before it has caught up",
        "partitions.reassignment.steps:next_step",
        "view.learner_match.get(node, -1) >= view.goal",
        "view.learner_match.get(node, -1) >= -1",
        script=STEPS,
    ),
    Mutant(
        "a replica learns before its broker is prepared",
        "partitions.reassignment.steps:next_step",
        "arriving = strangers & view.prepared",
        "arriving = strangers",
        script=STEPS,
    ),
    Mutant(
        "a late report counts",
        "partitions.metadata.replica_commands:replicas_changed",
        "command.membership_index < partition.membership_index",
        "command.membership_index < -1",
        script="tests/unit/partitions/metadata/test_replica_commands.py",
    ),
    Mutant(
        "the shortest log survives",
        "partitions.reassignment.unsafe_recovery:survey",
        "survivor = max(",
        "survivor = min(",
        script="tests/unit/partitions/test_recovery.py",
    ),
    Mutant(
        "the files of an interrupted deletion stay",
        "partitions.hosting.replica_manager:ReplicaManager._host_missing",
        "elif partition.partition in left:",
        "elif False:",
        script=f"{MOVING}::test_a_replica_that_went_while_its_broker_was_down_is_removed_at_the_next_start",
    ),
    Mutant(
        "a replica that is a target again is deleted by an earlier permit",
        "partitions.hosting.hosted_partition:HostedPartition.reconfigure",
        "self.may_be_deleted = self.may_be_deleted and is_leaving",
        "pass",
        script="tests/scenarios/partitions/test_moving.py::test_who_is_wanted_again_does_not_go_whatever_the_leader_has_said",
    ),
)

STALE = (
    Mutant(
        "a move is over although a change of an earlier leader may come back",
        "partitions.reassignment.steps:next_step",
        "Report() if view.has_committed else Change(membership)",
        "Report()",
        script="tests/unit/partitions/test_reassignment.py",
    ),
    Mutant(
        "a leader with an empty log does not append its membership again",
        "raftlog.core.changes:Changes.refusal",
        "if target == self._member.membership and self._has_committed:",
        "if target == self._member.membership:",
        script="tests/paper/test_raft_joint_membership.py",
    ),
    Mutant(
        "replicas that are left over are looked for at the first metadata only",
        "partitions.hosting.replica_manager:ReplicaManager._host_missing",
        "left = await self._folders.partitions_in(topic)",
        "left = [] if seen is not None else await self._folders.partitions_in(topic)",
        script="tests/scenarios/partitions/test_incarnations.py",
    ),
    Mutant(
        "a leader changes the membership by unconfirmed metadata",
        "partitions.reassignment.reassigner:Reassigner._take",
        "if not await self._is_current(key, info, move):",
        "if False:",
        script=REASSIGNER,
    ),
    Mutant(
        "a delete permit is given by metadata older than the replica's",
        "partitions.hosting.deletion:DeletePermits._is_gone",
        "image.version >= version",
        "True",
        script=DEPARTURES,
    ),
    Mutant(
        "a delete permit is given for an uncommitted membership",
        "partitions.hosting.deletion:DeletePermits._is_gone",
        "group.is_membership_committed",
        "True",
        script=DEPARTURES,
    ),
    Mutant(
        "a delete permit is given for a learner",
        "partitions.hosting.deletion:DeletePermits._is_gone",
        "node not in group.membership.members",
        "node not in group.membership.voters",
        script=DEPARTURES,
    ),
    Mutant(
        "a delete permit is given for a replica that is a target again",
        "partitions.hosting.deletion:DeletePermits._is_gone",
        "all(node not in partition.all_replicas for partition in wanted)",
        "True",
        script=DEPARTURES,
    ),
    Mutant(
        "a possibly deposed leader gives delete permits",
        "partitions.hosting.deletion:DeletePermits._led",
        "await group.confirm_read()",
        "pass",
        script=DEPARTURES,
    ),
    Mutant(
        "the leader of another group gives a delete permit",
        "partitions.hosting.deletion:DeletePermits._led",
        "replica is None or replica.group.group_id != group_id",
        "replica is None",
        script=DEPARTURES,
    ),
    Mutant(
        "preparation for an earlier target counts",
        "partitions.reassignment.reassigner:Reassigner._look",
        "move is None or move.epoch != epoch",
        "move is None",
        script=REASSIGNER,
    ),
    Mutant(
        "a leader of an earlier group moves the replicas of the recovered one",
        "partitions.reassignment.reassigner:Reassigner._look",
        "if group.group_id != info.group_id:",
        "if False:",
        script=REASSIGNER,
    ),
    Mutant(
        "a broker is prepared by metadata older than the leader's",
        "partitions.hosting.replica_manager:ReplicaManager._serve_prepared",
        "self._seen_version >= ask.version",
        "True",
        script=DEPARTURES,
    ),
    Mutant(
        "a broker is prepared while its replica leaves",
        "partitions.hosting.replica_manager:ReplicaManager._serve_prepared",
        "and not hosted.is_leaving",
        "",
        script=DEPARTURES,
    ),
    Mutant(
        "a broker is prepared whose replica has stopped",
        "partitions.hosting.replica_manager:ReplicaManager._serve_prepared",
        "and self._supervisor.state_of(group_id) is HostedState.SERVING",
        "",
        script=DEPARTURES,
    ),
    Mutant(
        "a permit that was asked for by older metadata counts",
        "partitions.hosting.replica_manager:ReplicaManager._ask_for_permits",
        "if is_permitted and hosted.partition is asked:",
        "if is_permitted:",
        script=MOVING,
    ),
    Mutant(
        "a replica starts by unconfirmed metadata",
        "partitions.hosting.opener:ReplicaOpener.open",
        "if not may_begin and not has_lived",
        "if False and not has_lived",
        script="tests/scenarios/partitions/test_manager.py",
    ),
    Mutant(
        "older metadata opens a recovered log",
        "partitions.hosting.opener:ReplicaOpener._keep_pace",
        "if done > partition.log_number:",
        "if False:",
        script=OPENINGS,
    ),
    Mutant(
        "a survivor stays in a term that other replicas may have",
        "partitions.hosting.opener:ReplicaOpener._survive",
        "Term(state.term + 1)",
        "state.term",
        script=OPENINGS,
    ),
    Mutant(
        "an added replica begins as a voter",
        "partitions.hosting.opener:ReplicaOpener.open",
        "is_rejoining=not partition.is_initial(self.node_id)",
        "is_rejoining=False",
        script=OPENINGS,
    ),
    Mutant(
        "an added replica begins its log itself",
        "partitions.hosting.opener:ReplicaOpener.open",
        " and partition.is_initial(self.node_id)",
        "",
        script=OPENINGS,
    ),
    Mutant(
        "an added replica counts as an initial replica",
        "partitions.metadata.replica_commands:set_replicas",
        "added=(*partition.added, *sorted(new))",
        "added=partition.newcomers",
        script=COMMANDS,
    ),
    Mutant(
        "a target that was planned by older metadata counts",
        "partitions.metadata.replica_commands:set_replicas",
        "if partition.target_replicas != command.expected:",
        "if False:",
        script=COMMANDS,
    ),
    Mutant(
        "a move takes a step before the last one is committed",
        "partitions.reassignment.steps:next_step",
        "if not view.is_committed or membership.is_joint:",
        "if membership.is_joint:",
        script=STEPS,
    ),
    Mutant(
        "learners outside the target stay",
        "partitions.reassignment.steps:next_step",
        "if arriving or wanted != learners:",
        "if arriving:",
        script=STEPS,
    ),
    Mutant(
        "a move begins without a majority",
        "partitions.metadata.move_planner:plan_move",
        '_check_majority(image, where, "vote now", partition.replicas)',
        "pass",
        script=PLANS,
    ),
    Mutant(
        "an added replica is counted from the voters, not from the target",
        "partitions.metadata.move_planner:_target",
        "wanted = partition.target_replicas if request.replicas is None",
        "wanted = partition.replicas if wish.replicas is None",
        script=PLANS,
    ),
    Mutant(
        "a partition with a majority is recovered",
        "partitions.metadata.move_planner:check_recovery",
        "if 2 * len(alive) > len(partition.replicas):",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a replica is opened before the registry has it",
        "raftlog.hosting.supervisor:Supervisor._open",
        "    await self._register(logs)\n"
        "    for hosted, log in logs.items():\n        await self._take_part(hosted, log)\n",
        "    for hosted, log in logs.items():\n        await self._take_part(hosted, log)\n"
        "    await self._register(logs)\n",
        script="tests/scenarios/partitions/test_manager.py",
    ),
    Mutant(
        "a broker is prepared by metadata that it has not acted on",
        "partitions.hosting.replica_manager:ReplicaManager._catch_up",
        "self._seen_version = image.version",
        "self._seen_version = self._metadata.image.version",
        equivalent="a replica that is still to go is leaving by what was acted on, or is of another group",
    ),
    Mutant(
        "brokers that were prepared for one target count for the next of the same membership",
        "partitions.reassignment.reassigner:Reassigner._look",
        "epoch = (group.term, info.version)",
        "epoch = (group.term, info.membership_index)",
        script=REASSIGNER,
    ),
)
