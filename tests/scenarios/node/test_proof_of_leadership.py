"""A leader that its peers cannot hear says nothing about the end of its log."""

from __future__ import annotations

import pytest

from partitions.values import QUORUM, Start
from raftlog.errors import NoLeader, NotLeader
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import FIRST_GROUP, NodeCluster
from tests.helpers.orders import batch_of


@in_virtual_time_with(lambda: NodeCluster(1))
async def test_an_isolated_leader_does_not_tell_where_its_log_ends(cluster: NodeCluster) -> None:
    replica = cluster.leading().replicas[FIRST_GROUP]
    await replica.append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)
    assert await replica.offset_at(Start.LATEST) == (1, None)
    leader = cluster.leading()
    for follower in cluster.followers():
        cluster.network.cut_both(leader.node_id, follower.node_id)
    assert leader.groups[FIRST_GROUP].is_ready, "it does not know yet"
    with pytest.raises((NotLeader, NoLeader)):
        await replica.offset_at(Start.LATEST)
    cluster.network.heal_all()
    await cluster.settled()
