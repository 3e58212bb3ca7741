"""Whom a damaged replica may ask, as the metadata tell."""

from __future__ import annotations

from dataclasses import dataclass

from partitions.controller.image import PartitionInfo, TopicInfo
from partitions.replica import PartitionReplica
from partitions.ward import Key, ReplicaWard
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


def test_a_replica_that_moves_in_is_a_peer_before_the_metadata_hear_that_it_votes() -> None:
    one, two, three, four = map(NodeId, (1, 2, 3, 4))
    partition = PartitionInfo(
        partition=0, group_id=GroupId(5), replicas=(one, two, three), target=(one, two, four)
    )
    topic = TopicInfo(
        name="orders",
        topic_id=TopicId("1"),
        replication_factor=3,
        partitions=(partition,),
        config={},
        version=1,
    )
    held: dict[Key, Damaged] = {("orders", 0): Damaged(topic, partition, LogCorrupt("bits"))}
    ward = ReplicaWard(one, held, lambda topic, at: "/data", lambda key: None, lambda: None)
    (sick,) = ward.sick()
    assert sick.patient.peers == (two, three, four)
