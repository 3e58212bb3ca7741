"""Bugs in what restores the replicas of dead brokers on others."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

PLANS = "tests/unit/partitions/metadata/test_healing.py"
SILENCE = "tests/unit/partitions/metadata/test_silence.py"
HEALTH = "tests/unit/cli/test_health.py"
SCENARIOS = "tests/scenarios/partitions/test_healing.py"

HEALING = (
    Mutant(
        "a broker is dead as soon as it is fenced",
        "partitions.metadata.healing:dead_brokers",
        "silent_ms.get(broker.broker_id, 0.0) >= broker_dead_ms",
        "silent_ms.get(broker.broker_id, 0.0) > 0",
        script=PLANS,
    ),
    Mutant(
        "a broker that counts as alive is dead",
        "partitions.metadata.healing:dead_brokers",
        "not broker.alive and ",
        "",
        script=PLANS,
    ),
    Mutant(
        "a draining broker receives restored replicas",
        "partitions.metadata.healing:plan_healing",
        " and not broker.draining",
        "",
        script=PLANS,
    ),
    Mutant(
        "a restored replica goes to a rack that has one already",
        "partitions.metadata.healing:_restored",
        "racks[_rack(image, node)], ",
        "",
        script=PLANS,
    ),
    Mutant(
        "a replica is restored on a broker that has one",
        "partitions.metadata.healing:_restored",
        "[node for node in candidates if node not in row]",
        "[*candidates]",
        script=PLANS,
    ),
    Mutant(
        "without a broker to spare the replicas change their order",
        "partitions.metadata.healing:plan_healing",
        "set(target) == set(partition.target_replicas)",
        "target == partition.target_replicas",
        script=PLANS,
    ),
    Mutant(
        "partitions with the most live replicas are restored first",
        "partitions.metadata.healing:_endangered",
        "(len(alive_of(image, one[1].replicas))",
        "(-len(alive_of(image, one[1].replicas))",
        script=PLANS,
    ),
    Mutant(
        "all partitions of a dead broker move at the same time",
        "partitions.metadata.healing:plan_healing",
        "if room < 1 and not partition.target:",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a partition without a majority is given other replicas",
        "partitions.metadata.healing:_endangered",
        " and has_majority(image, partition.replicas)",
        "",
        script=PLANS,
    ),
    Mutant(
        "a move that cannot end holds up all others",
        "partitions.metadata.healing:_is_moving",
        " and has_majority(image, partition.replicas)",
        "",
        script=PLANS,
    ),
    Mutant(
        "a restored replica replaces the target of a move that has begun meanwhile",
        "partitions.metadata.move_planner:plan_move",
        "if request.expected not in (None, partition.target_replicas):",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a pause of the controller is the silence of others",
        "partitions.metadata.silence:WatchedSilence.look",
        "min(max(now_ms - since_ms, 0.0), self._step_ms_max)",
        "max(now_ms - since_ms, 0.0)",
        script=SILENCE,
    ),
    Mutant(
        "a broker that is heard again is as silent as before",
        "partitions.metadata.silence:WatchedSilence.look",
        "0.0 if heard else",
        "self._silent_ms.get(broker, 0.0) if heard else",
        script=f"{SCENARIOS}::test_a_broker_that_flaps_is_not_dead",
    ),
    Mutant(
        "a controller that leads again counts the silence of its former time",
        "partitions.metadata.active:ActiveController._note_who_is_heard",
        "self._silence.begin_again()",
        "pass",
        script=f"{SCENARIOS}::test_a_controller_that_leads_again_counts_from_its_second_election",
    ),
    Mutant(
        "what could not be restored once is never restored",
        "partitions.metadata.active:ActiveController._healing_due",
        "state = (image.version, self._leaving, heard, without_room, refused)",
        "state = self._leaving",
        script=f"{SCENARIOS}::test_a_draining_broker_gets_nothing_until_it_takes_replicas_again",
    ),
    Mutant(
        "a controller takes back brokers that it has not heard",
        "partitions.metadata.silence:WatchedSilence.look",
        "frozenset(broker for broker, heard in is_heard.items() if heard)",
        "frozenset(is_heard)",
        script="tests/unit/partitions/metadata/test_liveness.py",
    ),
    Mutant(
        "a broker is fenced while it is heard",
        "partitions.metadata.liveness:decide",
        "silent_ms.get(broker_id, 0.0) >= dead_timeout_ms",
        "silent_ms.get(broker_id, 0.0) >= 0",
        script="tests/unit/partitions/metadata/test_liveness.py",
    ),
    Mutant(
        "partitions that move are counted as those to restore",
        "partitions.metadata.healing:healing_counts",
        "not set(partition.target_replicas).isdisjoint(leaving) for",
        "leaving and bool(partition.target) for",
        script=PLANS,
    ),
    Mutant(
        "a broker that does not lead reports moves",
        "partitions.metadata.active:ActiveController.healing",
        "if not self._group.is_ready:",
        "if False:",
        script=f"{SCENARIOS}::test_replicas_of_a_dead_broker_are_restored_and_nothing_is_lost",
    ),
    Mutant(
        "health does not say that a partition has lost its majority",
        "api.cli.health:Health._obstacle",
        "if lost and 2 * len(gone) >= len(partition.replicas):",
        "if False:",
        script=HEALTH,
    ),
)
