"""Every broker knows of a commit of the metadata at once, not with the next heartbeat."""

from __future__ import annotations

import pytest

from partitions.values import QUORUM
from raftlog.node.group_host import HostSettings
from raftlog.types import METADATA_GROUP, GroupId
from tests.helpers.node_cluster import NodeCluster
from tests.helpers.partition_cluster import batch_of
from tests.helpers.virtual_time import run_virtual

HEARTBEAT_S = 0.5


@pytest.mark.parametrize(("group_id", "at_once"), [(METADATA_GROUP, True), (GroupId(1), False)])
def test_followers_know_of_a_commit_of_the_metadata_before_the_next_heartbeat(
    group_id: GroupId, at_once: bool
) -> None:
    async def story() -> None:
        settings = HostSettings(heartbeat_ticks=10, election_ticks=30, quiet_ticks=1000)
        cluster = NodeCluster(1, first_group=group_id, settings=settings)
        await cluster.start()
        leader = cluster.leading(group_id)
        took_s = []
        for number in range(5):
            batch = batch_of(b"%d" % number)
            await leader.replicas[group_id].append(batch, acks=QUORUM, timeout_ms=1000)
            took_s.append(await cluster.until(lambda: cluster.is_settled(group_id)))
        assert (max(took_s) < HEARTBEAT_S / 5) == at_once
        await cluster.stop()

    run_virtual(story())
