"""Bugs in the replicated log start of partitions."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_DELETING
from tests.helpers.planted_bugs import Edit, Mutant

_SCENARIO = "tests/scenarios/partitions/test_log_start.py"
_DELETIONS = "tests/scenarios/partitions/test_delete_before.py"
_DELETE = "partitions.replica.deletion:Deletion.delete_before"
_UNIT = "tests/unit/partitions/test_log_start.py"
_READS = "partitions.replica.reads:Reads."
_LOOK_AT = "raftlog.hosting.retention:RetentionManager._look_at"
_ADVANCE = "raftlog.hosting.retention:RetentionManager._advance"

LOG_STARTS = (
    Mutant(
        "readers see where the leader's log begins",
        _READS + "log_start_offset",
        "max(self._serving.group.log.first_index, self._replicated_start.offset)",
        "self._serving.group.log.first_index",
        script=_SCENARIO,
    ),
    Mutant(
        "retention deletes before the log start is committed",
        _LOOK_AT,
        "isinstance(limits, RetentionLimits) and limits.log_start and group.is_ready",
        "isinstance(limits, RetentionLimits)",
        more=(
            Edit(_LOOK_AT, "_segment_start(kept.log, limits.log_start)", "first_kept"),
            Edit(_ADVANCE, "return False", "return True"),
        ),
        script=_SCENARIO,
    ),
    Mutant(
        "the log start is missing in the state of a partition",
        "partitions.replica.machine:PartitionMachine.restore",
        "self.log_start.restore(log_start)",
        "self.log_start.restore(b'')",
        script=_UNIT,
    ),
    Mutant(
        "a later entry sets the log start back",
        "partitions.replica.log_start:LogStart.apply",
        "max(self.offset, found)",
        "found",
        script=_UNIT,
    ),
    Mutant(
        "each log start of an idle partition makes room for the next",
        "partitions.hosting.hosted_partition:HostedPartition.retention",
        "None if is_sealed else newest",
        "None",
        script=_SCENARIO,
    ),
    Mutant(
        "retention needs more room than a full disk has",
        _ADVANCE,
        "frees_room=True",
        "frees_room=False",
        script=_SCENARIO,
    ),
    Mutant(
        "a new leader reads before it has applied its log",
        _READS + "_from_log",
        "await serving.ready(asyncio.get_running_loop().time() + CONFIRM_S)",
        "pass",
        more=(Edit(_READS + "_from_log", "if serving.group.term == term:", "if True:"),),
        script=_DELETIONS,
    ),
    Mutant(
        "a new leader serves although a later log start may stand in its log",
        "partitions.replica.serving:Serving.knows_start",
        "rest is not None and all(log_start_in(batch) is None for batch in rest)",
        "True",
        script=_DELETIONS,
    ),
    Mutant(
        "a leader that cannot commit serves nothing",
        "partitions.replica.serving:Serving.knows_start",
        "rest is not None and all(log_start_in(batch) is None for batch in rest)",
        "False",
        script="tests/scenarios/node/test_full_disks.py",
    ),
    Mutant(
        "a deletion is acknowledged before it is committed",
        _DELETE,
        "await asyncio.shield(proposal.outcome)",
        "pass",
        script=_DELETIONS,
    ),
    Mutant(
        "a deposed leader answers a deletion with its old log start",
        _DELETE,
        "await serving.confirm()",
        "pass",
        script=_DELETIONS,
    ),
    Mutant(
        "a log may begin above its end",
        "partitions.replica.deletion:Deletion._check_end",
        "if offset > end:",
        "if offset > end + 1:",
        script=_DELETIONS,
    ),
    Mutant(
        "the records of an open transaction are deleted",
        "partitions.replica.deletion:Deletion._check_end",
        "if offset > stable:",
        "if False:",
        script=_DELETIONS,
    ),
    Mutant(
        "the newest records of keys are deleted",
        _DELETE,
        "if not topic_config.deletes(config):",
        "if False:",
        script=_DELETIONS,
    ),
    Mutant(
        "the state of an internal topic is deleted",
        "partitions.replica.replica:PartitionReplica.delete_before",
        "if self._derived is not None:",
        "if False:",
        script=_DELETIONS,
    ),
    Mutant(
        "a lower offset writes another log start",
        _DELETE,
        "if start > self._machine.log_start.offset:",
        "if True:",
        script=_DELETIONS,
    ),
    Mutant(
        "a start that is not replicated is acknowledged",
        _DELETE,
        "start = max(offset, self._reads.log_start_offset)",
        "start = offset",
        script=_DELETIONS,
    ),
    Mutant(
        "a topic that is only compacted keeps deleted segments",
        "partitions.hosting.hosted_partition:HostedPartition.retention",
        "retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT, log_start=log_start",
        "retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT",
        script=_DELETIONS,
    ),
    Mutant(
        "records cannot be deleted from a full disk",
        _DELETE,
        "frees_room=True",
        "frees_room=False",
        script=_DELETIONS,
    ),
    Mutant(
        "the log start falls with its leader",
        _READS + "log_start_offset",
        "max(self._serving.group.log.first_index, self._replicated_start.offset)",
        "self._serving.group.log.first_index",
        level=BROKERS_DELETING,
    ),
    Mutant(
        "a replica that restarts has forgotten its log start",
        "partitions.replica.machine:PartitionMachine.restore",
        "self.log_start.restore(log_start)",
        "self.log_start.restore(b'')",
        level=BROKERS_DELETING,
    ),
    Mutant(
        "a deletion that is not committed is acknowledged",
        _DELETE,
        "await asyncio.shield(proposal.outcome)",
        "return offset",
        level=BROKERS_DELETING,
    ),
)
