"""Segments that nobody appends to grow old, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from partitions.values import QUORUM
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.partition_cluster import batch_of, eventually


# requirement: RT2, L2
def test_an_idle_partition_closes_its_old_segment_and_lets_it_go(tmp_path: Path) -> None:
    async def story() -> None:
        async with ControlledCluster(str(tmp_path)) as cluster:
            await cluster.create("orders", segment_ms=50, retention_ms=50)
            found = [broker.manager.replicas["orders", 0] for broker in cluster.brokers.values()]
            await eventually(lambda: any(replica.group.is_ready for replica in found))
            leader = next(replica for replica in found if replica.group.is_ready)
            await leader.append(batch_of(b"v"), acks=QUORUM, timeout_ms=5000)
            await eventually(lambda: all(replica.group.durable_index == 0 for replica in found))
            await asyncio.sleep(0.06)  # what the test is about: an age
            for broker in cluster.brokers.values():
                await broker.manager.retention.look()
            assert (await leader.append(batch_of(b"w"), acks=QUORUM, timeout_ms=5000)).base_offset == 1
            await eventually(lambda: all(replica.group.durable_index == 1 for replica in found))
            for broker in cluster.brokers.values():
                await broker.manager.retention.look()
            assert [replica.group.log.first_index for replica in found] == [1, 1, 1]

    asyncio.run(story())
