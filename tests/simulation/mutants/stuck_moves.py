"""Bugs in what gives up moves to brokers that do not open their new replicas."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

PLANS = "tests/unit/partitions/metadata/test_healing.py"
REFUSALS = "tests/unit/partitions/metadata/test_refusals.py"
SCENARIOS = "tests/scenarios/partitions/test_healing.py"
REASSIGNER = "tests/scenarios/partitions/test_reassigner.py"
STEPS = "tests/unit/partitions/test_reassignment.py"

STUCK_MOVES = (
    Mutant(
        "a move that is stuck holds up all others",
        "partitions.metadata.healing:_is_moving",
        "not unable.of(topic, partition)",
        "not (unable.of(topic, partition) & unable._without_room)",
        script=PLANS,
    ),
    Mutant(
        "a restored replica goes to a broker that refuses another",
        "partitions.metadata.healing:_Unable.__init__",
        "without_room.union(report.broker_id for report in refused)",
        "without_room",
        script=PLANS,
    ),
    Mutant(
        "a report about an earlier target counts for the next",
        "partitions.metadata.healing:_Unable.of",
        "and report.target_version == partition.version",
        "",
        script=PLANS,
    ),
    Mutant(
        "a voter that is reported is replaced",
        "partitions.metadata.healing:_Unable.of",
        "new & (self._without_room | refusing)",
        "(new & self._without_room) | refusing",
        script=PLANS,
    ),
    Mutant(
        "a stuck move does not go back to a broker that still votes",
        "partitions.metadata.healing:_restored",
        "node not in partition.replicas, load",
        "False, load",
        script=PLANS,
    ),
    Mutant(
        "a broker is avoided for ever",
        "partitions.metadata.refusals:Refusals.now",
        "if now_ms - found[0] < AVOIDED_MS",
        "if True",
        script=REFUSALS,
    ),
    Mutant(
        "a replica that makes progress is stuck",
        "partitions.reassignment.patience:Patience.stuck",
        "if before is not None and before[0] == reached",
        "if before is not None",
        script=STEPS,
    ),
    Mutant(
        "a leader does not report a replica that is not open",
        "partitions.reassignment.steps:next_step",
        "if view.stuck:",
        "if False:",
        script=STEPS,
    ),
    Mutant(
        "a new replica of an empty log is never stuck",
        "partitions.reassignment.reassigner:_view",
        "(node not in matches or matches[node] < move.goal or",
        "(matches.get(node, -1) < move.goal or",
        script=SCENARIOS,
    ),
    Mutant(
        "a replica that has caught up and is not open any more is never stuck",
        "partitions.reassignment.reassigner:Reassigner._can_commit",
        "if not answer.is_open)",
        "if False)",
        script=REASSIGNER,
    ),
    Mutant(
        "a leader does not say why a replica is not open",
        "partitions.hosting.replica_manager:ReplicaManager._why_not_open",
        "self._supervisor.reason_of(group_id) or",
        "",
        script=SCENARIOS,
    ),
)
