"""Transactions whose marker was lost, as an unsafe recovery can: they do not stay open for ever."""

from __future__ import annotations

from partitions.values import QUORUM
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.transactional import TransactionalProducer, committed, coordinating, visible_values
from transactions.coordinator import Markers

# requirement: D3


async def lose(cluster: PartitionCluster, producer: TransactionalProducer, *, is_commit: bool) -> None:
    """End a transaction; its markers are lost."""
    coordinator = next(broker for broker in cluster if coordinating(broker)).transactions.coordinators[0]
    markers: Markers = coordinator._markers
    coordinator._markers = InstantMarkers()  # acknowledged, and written nowhere
    assert await (producer.commit() if is_commit else producer.abort()) is is_commit
    coordinator._markers = markers


async def look(cluster: PartitionCluster, times: int) -> ControlledBroker:
    """As each broker does now and then."""
    for _ in range(times):
        for broker in cluster:
            await broker.transactions.lost_markers.look()
    return await cluster.leader()


@in_virtual_time
async def test_a_leader_learns_the_outcome_of_a_transaction_whose_marker_is_lost() -> None:
    for is_commit in (True, False):
        async with PartitionCluster() as cluster:
            producer = await TransactionalProducer(cluster.any).open()
            await producer.write(b"a")
            await lose(cluster, producer, is_commit=is_commit)
            await cluster.any.gateway.append(ORDERS, batch_of(b"plain"), acks=QUORUM, timeout_ms=1_000)
            leader = await look(cluster, 1)
            assert visible_values(await committed(leader)) == [], "it may be a young one"
            leader = await look(cluster, 1)
            assert visible_values(await committed(leader)) == [b"a"] * is_commit + [b"plain"]
            end = leader.orders.high_watermark
            await look(cluster, 3)
            assert leader.orders.high_watermark == end


@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_whose_outcome_is_forgotten_is_aborted(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    await lose(cluster, producer, is_commit=True)
    for _ in range(2):
        await producer.commit()
    leader = await look(cluster, 2)
    assert visible_values(await committed(leader)) == []
    await producer.write(b"b")
    await producer.commit()
    assert visible_values(await committed(leader)) == [b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_that_is_open_at_its_coordinator_stays_open(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any, timeout_ms=900_000).open()
    await producer.write(b"a")
    leader = await look(cluster, 4)
    assert visible_values(await committed(leader)) == []
    await producer.write(b"b")
    assert await producer.commit()
    assert visible_values(await committed(leader)) == [b"a", b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_a_later_transaction_decides_nothing_about_a_lost_marker(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"aborted")
    await lose(cluster, producer, is_commit=False)
    await producer.write(b"b")
    assert await producer.commit()
    assert visible_values(await committed(cluster.any)) == [b"b"]
