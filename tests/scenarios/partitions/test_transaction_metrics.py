"""What a broker reports of transactions: as their coordinator, and as the leader of a partition."""

from __future__ import annotations

import asyncio

from api.cli.health import Health
from api.transaction_metrics import TransactionMetrics
from raftlog.errors import NoLeader
from raftlog.wire.bodies import PartitionBody
from raftlog.wire.limits import TRANSACTION_MS_MAX
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.transactional import TransactionalProducer, coordinating
from transactions.coordinator import Markers
from transactions.records import Handle, Participant
from transactions.requests import AbortOpen, Prepare


def reported(cluster: PartitionCluster) -> dict[str, float]:
    """The samples of all brokers, added; by the label, or by the name of the metric."""
    found: dict[str, float] = {}
    for broker in cluster:
        for metric in TransactionMetrics(broker.transactions, broker.clock).collect():
            for sample in metric.samples:
                label = next(iter(sample.labels.values()), sample.name)
                found[label] = found.get(label, 0) + sample.value
    return found


@in_virtual_time_with(PartitionCluster)
async def test_a_coordinator_counts_its_transactions_by_outcome_and_reason(cluster: PartitionCluster) -> None:
    copy = await TransactionalProducer(cluster.any).open()
    for end in (copy.commit, copy.abort, copy.commit):
        await copy.write(b"a")
        await end()
    assert await copy.commit(), "without records it does not count"
    await copy.write(b"a")
    await TransactionalProducer(cluster.any).open()
    slow = await TransactionalProducer(cluster.any, "slow", timeout_ms=1_000).open()
    await slow.write(b"a")
    await asyncio.sleep(3)
    await copy.ask(AbortOpen(transactional_id="slow"))
    hung = await TransactionalProducer(cluster.any, "hung").open()
    await hung.write(b"a")
    await copy.ask(AbortOpen(transactional_id="hung"))
    found = reported(cluster)
    assert [found[name] for name in ("producer", "timeout", "fenced", "operator")] == [1, 1, 1, 1]
    assert found["raftlog_transactions_committed_total"] == 2
    assert found["ongoing"] == found["raftlog_transaction_oldest_seconds"] == 0


@in_virtual_time_with(PartitionCluster)
async def test_open_and_prepared_transactions_are_reported_with_their_age(cluster: PartitionCluster) -> None:
    first = await TransactionalProducer(cluster.any, "sink~1").open()
    await first.write(b"a")
    await asyncio.sleep(7)
    second = await TransactionalProducer(cluster.any, "copy").open()
    await second.write(b"b")
    await first.ask(Prepare(transaction=first.handle, prepared_ms_max=60_000))
    found = reported(cluster)
    assert (found["ongoing"], found["prepared"]) == (1, 1)
    assert 7 <= found["raftlog_transaction_oldest_seconds"] < 8
    await second.commit()
    assert reported(cluster)["ongoing"] == 0


class RefusedMarkers(InstantMarkers):
    """Partitions that take no marker until ``is_open`` is set."""

    def __init__(self, markers: Markers) -> None:
        super().__init__()
        self._markers = markers
        self.is_open = False

    async def write(
        self,
        target: Participant,
        transaction: Handle,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> None:
        """See the port."""
        if not self.is_open:
            raise NoLeader("an election is under way")
        await self._markers.write(
            target,
            transaction,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timeout_ms=timeout_ms,
        )


@in_virtual_time_with(PartitionCluster)
async def test_markers_that_a_partition_does_not_take_are_counted(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    coordinator = next(broker for broker in cluster if coordinating(broker)).transactions.coordinators[0]
    coordinator._markers = refused = RefusedMarkers(coordinator._markers)
    ending = asyncio.get_running_loop().create_task(producer.commit())
    await asyncio.sleep(1)
    found = reported(cluster)
    assert (found["prepare_commit"], found["raftlog_transaction_markers_unwritten"]) == (1, 1)
    assert found["raftlog_transaction_marker_retries_total"] > 2
    refused.is_open = True
    assert await ending
    assert reported(cluster)["raftlog_transaction_markers_unwritten"] == 0


@in_virtual_time_with(PartitionCluster)
async def test_a_partition_says_for_how_long_its_readers_wait(cluster: PartitionCluster) -> None:
    # requirement: D3
    producer = await TransactionalProducer(cluster.any, timeout_ms=60_000).open()
    await producer.write(b"a")
    await asyncio.sleep(9)
    (status,) = await cluster.any.gateway.describe("orders")
    assert (status.last_stable_offset, status.high_watermark) == (0, 1)
    assert 9_000 <= status.readers_held_ms < 10_000
    leader = await cluster.leader()
    await cluster.stop(leader.node_id)
    await cluster.leader()
    (status,) = await cluster.any.gateway.describe("orders")
    assert status.readers_held_ms >= 8_500, "the next leader has seen it, too"
    producer.broker = cluster.any
    await producer.commit()
    (status,) = await cluster.any.gateway.describe("orders")
    assert (status.readers_held_ms, status.last_stable_offset) == (0, status.high_watermark)


def test_a_transaction_that_should_have_ended_is_a_problem() -> None:
    health = Health([], [])
    for number, held_ms in enumerate((TRANSACTION_MS_MAX, 20 * 60_000)):
        health.add(
            "orders",
            PartitionBody(
                number, 1, 1, [1], [], [1], 9, 0, 10, 10, 0, last_stable_offset=4, readers_held_ms=held_ms
            ),
        )
    assert health.held_back == ["orders/1"]
    assert health.problems == [
        "orders/1 shows nothing from offset 4 on: a transaction is open for 20 minutes; "
        "see `raftlog transaction list`"
    ]
