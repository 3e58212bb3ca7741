"""Bugs in decommissioning brokers, and in moves to brokers without room."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

PLANS = "tests/unit/partitions/metadata/test_healing.py"
CHECKS = "tests/unit/partitions/metadata/test_decommissioning.py"
MACHINE = "tests/unit/partitions/metadata/test_machine.py"
SCENARIOS = "tests/scenarios/partitions/test_healing.py"

DECOMMISSION = (
    Mutant(
        "a decommissioned broker keeps its replicas",
        "partitions.metadata.healing:leaving_brokers",
        "if broker.decommissioned",
        "if False",
        script=PLANS,
    ),
    Mutant(
        "a broker without room receives new replicas",
        "partitions.metadata.healing:_Unable.__init__",
        "without_room.union(report.broker_id for report in refused)",
        "frozenset(report.broker_id for report in refused)",
        script=PLANS,
    ),
    Mutant(
        "replicas leave a broker whose disk is full",
        "partitions.metadata.healing:_Unable.of",
        "new & (self._without_room | refusing)",
        "self._without_room | (new & refusing)",
        script=PLANS,
    ),
    Mutant(
        "a move to a broker without room stays as it is",
        "partitions.metadata.healing:_Unable.of",
        "new & (self._without_room | refusing)",
        "new & refusing",
        script=PLANS,
    ),
    Mutant(
        "a move to a broker without room holds up all others",
        "partitions.metadata.healing:_is_moving",
        "not unable.of(topic, partition)",
        "True",
        script=PLANS,
    ),
    Mutant(
        "the last brokers that can hold a partition are decommissioned",
        "partitions.metadata.decommissioning:check_decommission",
        "len(partition.target_replicas) > others",
        "False",
        script=CHECKS,
    ),
    Mutant(
        "a broker that is down is to take the replicas of a decommissioned one",
        "partitions.metadata.decommissioning:_that_take_replicas",
        "other.alive and ",
        "",
        script=CHECKS,
    ),
    Mutant(
        "a draining broker is to take the replicas of a decommissioned one",
        "partitions.metadata.decommissioning:_that_take_replicas",
        "not other.draining and ",
        "",
        script=CHECKS,
    ),
    Mutant(
        "a replica on its way to a decommissioned broker is not asked about",
        "partitions.metadata.decommissioning:check_decommission",
        "in partition.all_replicas",
        "in partition.replicas",
        script=CHECKS,
    ),
    Mutant(
        "a decommissioned broker is used again once it starts again",
        "partitions.metadata.broker_commands:register",
        "decommissioned=before is not None and before.decommissioned,",
        "",
        script=MACHINE,
    ),
    Mutant(
        "a decommissioned broker that is drained no longer takes replicas",
        "partitions.metadata.broker_commands:drain",
        "draining or broker.decommissioned",
        "draining",
        script=MACHINE,
    ),
    Mutant(
        "a recommissioned broker takes no replicas",
        "partitions.metadata.broker_commands:decommission",
        "draining=decommissioned, decommissioned",
        "draining=True, decommissioned",
        script=MACHINE,
    ),
    Mutant(
        "a broker without room is not noticed",
        "partitions.metadata.active:ActiveController._note_who_is_heard",
        "not self._host.declines(broker)",
        "True",
        script=f"{SCENARIOS}::test_a_broker_without_room_gets_nothing_until_it_has_some",
    ),
    Mutant(
        "what a peer says about its room is forgotten",
        "raftlog.node.peer_watch:PeerWatch.declines",
        "peer in self._declining",
        "False",
        script=f"{SCENARIOS}::test_a_broker_without_room_gets_nothing_until_it_has_some",
    ),
    Mutant(
        "where healing is switched off nothing can be decommissioned",
        "partitions.metadata.healing:plan_healing",
        "(moves_max or 1)",
        "moves_max",
        script=f"{SCENARIOS}::test_a_decommissioned_broker_gives_up_its_replicas_also_where_healing_is_switched_off",
    ),
)
