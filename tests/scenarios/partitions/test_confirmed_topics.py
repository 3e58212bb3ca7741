"""A broker whose metadata lag denies no topic and no partition that another broker has acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.coordinators.groups import ConsumedTopics
from groups.ports import Extent, Place
from partitions.metadata.image import MetadataImage
from partitions.metadata.service import Controller
from partitions.routing import rpc
from partitions.routing.gateway import Gateway
from partitions.values import QUORUM, FetchRequest, Start
from raftlog.errors import NoLeader, PartitionNotFound, TopicNotFound
from raftlog.records.control import Marker
from raftlog.types import NodeId, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.orders import ORDERS, batch_of

LATER = TopicPartition("later", 0)
ADDED = TopicPartition("orders", 1)


class Lagging:
    """The metadata of a broker as they were, until it asks the controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.image = controller.image
        self.asked = 0

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """The newest metadata."""
        self.asked += 1
        self.image = await self._controller.current_image(timeout_ms)
        return self.image


def lagging(cluster: PartitionCluster) -> tuple[Lagging, Gateway]:
    """The gateway of the broker without replicas; its metadata are those of now."""
    far = cluster.brokers[NodeId(4)]
    metadata = Lagging(far.controller)
    return metadata, Gateway(far.node_id, metadata, far.manager.replicas, far.host.calls)


# requirement: T2, D3
@pytest.mark.parametrize("call", ["append", "fetch", "closest", "mark", "offset_at", "describe"])
@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_any_call_reaches_a_topic_that_was_created_elsewhere(
    cluster: PartitionCluster, call: str
) -> None:
    metadata, gateway = lagging(cluster)
    await cluster.create_with("later", 1, 3, {})
    earliest = FetchRequest(position=Start.EARLIEST, max_staleness_ms=1_000 if call == "closest" else 0)
    calls = {
        "append": lambda: gateway.append(LATER, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000),
        "fetch": lambda: gateway.fetch(LATER, earliest),
        "closest": lambda: gateway.fetch(LATER, earliest),
        "mark": lambda: gateway.mark(LATER, Marker(7, 3, True, 2, 0), timeout_ms=5_000),
        "offset_at": lambda: gateway.offset_at(LATER, Start.LATEST),
        "describe": lambda: gateway.describe("later"),
    }
    await calls[call]()
    assert metadata.asked == 1


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_topic_is_denied_once_the_controller_was_asked(cluster: PartitionCluster) -> None:
    metadata, gateway = lagging(cluster)
    with pytest.raises(TopicNotFound):
        await gateway.append(LATER, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)
    with pytest.raises(PartitionNotFound):
        await gateway.append(ADDED, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)
    assert metadata.asked == 2
    cluster.network.isolate(NodeId(4))
    with pytest.raises(NoLeader):
        await gateway.append(LATER, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_topic_that_was_created_again_elsewhere_is_not_denied(cluster: PartitionCluster) -> None:
    metadata, gateway = lagging(cluster)
    await cluster.any.controller.delete_topic("orders", expected_version=None, timeout_ms=5_000)
    await cluster.create_with("orders", 1, 3, {})

    async def deny(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, tuple[()]]:
        raise TopicNotFound("the topic was deleted")  # as a replica of the deleted topic says

    for broker in cluster:
        broker.host.calls.serve(rpc.APPEND, deny)
    with pytest.raises(NoLeader, match="created or deleted"):
        await gateway.append(ORDERS, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)
    assert metadata.asked == 1
    await cluster.any.controller.delete_topic("orders", expected_version=None, timeout_ms=5_000)
    with pytest.raises(TopicNotFound):
        await gateway.append(ORDERS, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)


# requirement: G11
@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_offsets_in_an_added_partition_are_not_taken_for_meaningless(cluster: PartitionCluster) -> None:
    """Otherwise an unused group would be forgotten with records behind its offsets."""
    metadata, gateway = lagging(cluster)
    topic = await cluster.any.controller.add_partitions(
        "orders", 1, expected=1, expected_version=None, timeout_ms=5_000
    )
    topics = ConsumedTopics(cast("Any", metadata), gateway)
    places = [Place("orders", topic.topic_id, number) for number in (1, 2)]
    assert await topics.extents(places) == {places[0]: Extent(0, 0), places[1]: None}


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_an_id_that_is_gone_is_asked_for_once(cluster: PartitionCluster) -> None:
    """Ids never come again, and a group may have offsets of many topics that were deleted."""
    metadata, gateway = lagging(cluster)
    for _ in range(3):
        assert await gateway.topics.topic("orders", "another") is None
    assert metadata.asked == 1
    assert await gateway.topics.topic("orders") == metadata.image.topics["orders"]
    await asyncio.gather(*(gateway.topics.hear_of([("orders", 0), ("orders", 1 << 30)]) for _ in range(3)))
    assert metadata.asked == 1
