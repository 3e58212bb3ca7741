"""A coordinator that does not know yet that it is deposed refuses nothing for good."""

from __future__ import annotations

from functools import partial

import pytest

from raftlog.errors import NoLeader, RaftlogError
from raftlog.node.group.raft_group import RaftGroup
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.transactional import TransactionalProducer, coordinating
from tests.helpers.virtual_time import eventually
from transactions.records import TOPIC
from transactions.requests import End


async def deposed(cluster: PartitionCluster) -> tuple[ControlledBroker, ControlledBroker]:
    """One coordinator that is cut off and still believes that it leads, and its successor."""
    while True:
        old = next(broker for broker in cluster if coordinating(broker))
        new = next(broker for broker in cluster if broker is not old)
        leading, following = (broker.manager.replicas[TOPIC, 0].group for broker in (old, new))
        leading.transfer_leadership(new.node_id)
        await eventually(partial(_is_later, following, leading))
        cluster.network.isolate(old.node_id)
        await eventually(partial(coordinating, new))
        if coordinating(old):
            return old, new
        cluster.network.heal_all()  # it has heard of the election in time


def _is_later(following: RaftGroup[None], leading: RaftGroup[None]) -> bool:
    return following.term > leading.term


@in_virtual_time_with(PartitionCluster)
async def test_a_deposed_coordinator_denies_no_transaction(cluster: PartitionCluster) -> None:
    # requirement: D3
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    await producer.commit()
    old, new = await deposed(cluster)
    producer = await TransactionalProducer(new).open()
    end = End(transaction=producer.handle, is_commit=True)
    with pytest.raises(RaftlogError) as refusal:
        await old.transactions.service.ask(end, timeout_ms=1_000)
    assert isinstance(refusal.value, NoLeader)
    await producer.ask(end)
