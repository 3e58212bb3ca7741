"""A replica that has broken an invariant is not opened again until it has moved away and come back."""

from __future__ import annotations

from raftlog.errors import InvariantViolated
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.moving import holds, info, move, produce, values
from tests.helpers.virtual_time import eventually


# A group that breaks an invariant ends its broker once; the next start stops and reports the group.
@in_virtual_time_with(ControlledCluster)
async def test_a_broken_replica_is_reported_and_the_others_serve(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 2)
    await produce(cluster, b"a")
    broken = cluster.brokers[NodeId(3)]
    group = info(broken).group_id
    await cluster.stop(NodeId(3))
    notes = BrokenGroups(broken.filesystem, broken.directory, broken.host.clock)
    notes.note(group, InvariantViolated("a test says so"))

    third = await cluster.start(NodeId(3))
    await cluster.registered()
    await eventually(lambda: ("orders", 1) in third.manager.replicas)
    assert ("orders", 0) not in third.manager.replicas
    assert list(third.manager.failures) == [("orders", 0)]
    assert "a test says so" in third.manager.failures["orders", 0]
    await produce(cluster, b"b")

    await move(cluster, 1, 2)
    await eventually(lambda: not holds(cluster, NodeId(3)))
    await move(cluster, 1, 2, 3)
    await eventually(lambda: ("orders", 0) in third.manager.replicas)
    assert third.manager.failures == {}
    assert BrokenGroups(third.filesystem, third.directory, third.host.clock).reasons == {}
    assert await values(third) == [b"a", b"b"]
