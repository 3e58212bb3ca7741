"""A topic that was deleted by mistake is taken back from the trash as the operators' manual says."""

from __future__ import annotations

import shutil
from pathlib import Path

from partitions.values import QUORUM
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.moving import values
from tests.helpers.orders import ORDERS, batch_of


# requirement: T7
@in_virtual_time
async def test_the_records_of_a_deleted_topic_come_back_into_a_new_one(tmp_path: Path) -> None:
    async with ControlledCluster(str(tmp_path)) as cluster:
        await cluster.create("orders")
        for value in (b"a", b"b"):
            await cluster.any.gateway.append(ORDERS, batch_of(value), acks=QUORUM, timeout_ms=5000)
        await cluster.delete("orders")
        await cluster.create("orders")
    for broker in range(1, 4):
        data = tmp_path / f"broker-{broker}"
        (deleted,) = data.glob("trash/*-deleted/orders-*/Partition-0")
        (fresh,) = data.glob("orders-*/Partition-0")
        shutil.rmtree(fresh)
        shutil.copytree(deleted, fresh)
    async with ControlledCluster(str(tmp_path)) as cluster:
        assert await values(cluster.any) == [b"a", b"b"]
        await cluster.any.gateway.append(ORDERS, batch_of(b"c"), acks=QUORUM, timeout_ms=5000)
        assert await values(cluster.any) == [b"a", b"b", b"c"]
