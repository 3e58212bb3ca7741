"""Whom a damaged replica may ask, as the metadata tell, and how long somebody is called for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from partitions.hosting.replica_supervisor import Key, ReplicaSupervisor
from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.replica.replica import PartitionReplica
from raftlog.errors import LogCorrupt
from raftlog.types import GroupId, NodeId, TopicId


@dataclass
class Damaged:
    """A replica that did not open."""

    topic: TopicInfo
    partition: PartitionInfo
    error: BaseException | None
    replica: PartitionReplica | None = None
    failure: str = ""
    is_short_of_room: bool = False
    is_leaving: bool = False


ONE, TWO, THREE, FOUR = map(NodeId, (1, 2, 3, 4))
PARTITION = PartitionInfo(
    partition=0, group_id=GroupId(5), replicas=(ONE, TWO, THREE), target=(ONE, TWO, FOUR)
)
TOPIC = TopicInfo(
    name="orders",
    topic_id=TopicId("1"),
    replication_factor=3,
    partitions=(PARTITION,),
    config={},
    version=1,
)


def ward_with(held: dict[Key, Damaged]) -> ReplicaSupervisor:
    held["orders", 0] = Damaged(TOPIC, PARTITION, LogCorrupt("bits"))
    return ReplicaSupervisor(
        ONE, held, lambda topic, at: "/data", lambda key: None, lambda: None, lambda directory: None
    )


def test_a_replica_that_moves_in_is_a_peer_before_the_metadata_hear_that_it_votes() -> None:
    (failed,) = ward_with({}).failed()
    assert failed.repair_target.peers == (TWO, THREE, FOUR)


@pytest.mark.parametrize("remedy", ["repaired", "moved away", "deleted", "another group"])
def test_somebody_is_called_until_the_replica_is_repaired_or_gone(remedy: str) -> None:
    held: dict[Key, Damaged] = {}
    supervisor = ward_with(held)
    (failed,) = supervisor.failed()
    supervisor.needs_operator(failed, "it is damaged again")
    assert supervisor.needing_operator == {("orders", 0): "it is damaged again"}
    match remedy:
        case "repaired":
            supervisor.bring_online(failed)
        case "moved away":
            held["orders", 0].is_leaving = True
        case "deleted":
            held.clear()
        case _:
            held["orders", 0].partition = replace(PARTITION, group_id=GroupId(6))
    assert not supervisor.needing_operator
