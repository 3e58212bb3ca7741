"""Where commits are announced, followers know of one at once, not with the next heartbeat."""

from __future__ import annotations

import pytest

from partitions.values import QUORUM
from raftlog.node.group_host import HostSettings
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.node_cluster import FIRST_GROUP, NodeCluster
from tests.helpers.orders import batch_of

HEARTBEAT_S = 0.5


@pytest.mark.parametrize("at_once", [True, False])
@in_virtual_time
async def test_followers_know_of_an_announced_commit_before_the_next_heartbeat(at_once: bool) -> None:
    settings = HostSettings(heartbeat_ticks=10, election_ticks=30, quiet_ticks=1000)
    cluster = NodeCluster(1, announces_commits=at_once, settings=settings)
    await cluster.start()
    leader = cluster.leading()
    took_s = []
    for number in range(5):
        batch = batch_of(b"%d" % number)
        await leader.replicas[FIRST_GROUP].append(batch, acks=QUORUM, timeout_ms=1000)
        took_s.append(await cluster.until(lambda: cluster.is_settled(FIRST_GROUP)))
    assert (max(took_s) < HEARTBEAT_S / 5) == at_once
    await cluster.stop()
