"""Bugs in restoring replicas that runs in which brokers die must see."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_HEALING
from tests.helpers.planted_bugs import Mutant


def _seen(name: str, place: str, text: str, planted: str) -> Mutant:
    return Mutant(name, place, text, planted, level=BROKERS_HEALING)


HEALING_SEEDS = (
    _seen(
        "the replicas of dead brokers are never restored",
        "partitions.metadata.healing:plan_healing",
        "if not endangered:",
        "if True:",
    ),
    _seen(
        "a dead broker's replica is removed and none is added",
        "partitions.metadata.healing:_restored",
        "row = [node for node in partition.target_replicas if node not in leaving]",
        "return tuple(node for node in partition.target_replicas if node not in leaving)",
    ),
    _seen(
        "replicas are restored without a look at racks",
        "partitions.metadata.healing:_restored",
        "racks[_rack(image, node)], ",
        "",
    ),
    _seen(
        "replicas are restored on a dead broker",
        "partitions.metadata.healing:plan_healing",
        "if broker.alive and not broker.draining and broker.broker_id in heard",
        "if not broker.draining",
    ),
    _seen(
        "a dead broker that returns keeps replicas that were restored elsewhere",
        "partitions.hosting.replica_manager:ReplicaManager._host_missing",
        "wanted = me in partition.all_replicas",
        "wanted = True",
    ),
)
