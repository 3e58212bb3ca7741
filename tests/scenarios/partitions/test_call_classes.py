"""Calls that brokers make for their clients: one class that is full leaves the others alone."""

from __future__ import annotations

import asyncio

import pytest

from partitions.values import QUORUM, Start
from raftlog.errors import Overloaded
from raftlog.node.rpc_classes import CALLS_MAX, CallClass
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of
from tests.helpers.virtual_time import eventually


@in_virtual_time
async def test_parked_long_polls_keep_nobody_from_producing(monkeypatch: pytest.MonkeyPatch) -> None:
    # requirement: C4
    bound = 20
    monkeypatch.setitem(CALLS_MAX, CallClass.FETCH, bound)
    async with PartitionCluster(4) as cluster:
        leader = await cluster.leader()
        here = cluster.brokers[NodeId(4)].gateway  # it has no replica, and forwards everything
        await here.append(ORDERS, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)
        polls = [asyncio.create_task(here.fetch(ORDERS, fetch_from(1, wait_ms=60_000))) for _ in range(bound)]
        await eventually(lambda: len(leader.host.calls._running) == bound)
        with pytest.raises(Overloaded) as caught:
            await here.fetch(ORDERS, fetch_from(1, wait_ms=60_000))
        assert caught.value.details["retry_after_ms"] > 0
        assert (await here.offset_at(ORDERS, Start.LATEST))[0] == 1
        assert (await here.describe("orders"))[0].leader == leader.node_id
        await here.append(ORDERS, batch_of(b"b"), acks=QUORUM, timeout_ms=5_000)
        assert [values_of((await poll).data) for poll in polls] == [[b"b"]] * bound
