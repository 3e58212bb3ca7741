"""Transactions in real Raft groups: what readers see, what is fenced, lost markers, and what is reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest

from api.cli.health import Health
from broker.metrics.transactions import TransactionMetrics
from groups.records import TOPIC as OFFSETS
from partitions.values import QUORUM, Acks, AtTime, FetchRequest, LastRecords, Start
from raftlog.errors import (
    InvalidRequest,
    NoLeader,
    OffsetOutOfRange,
    OutcomeForgotten,
    ProducerFenced,
    RaftlogError,
    TransactionNotFound,
)
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.batch import split_batches
from raftlog.records.builder import with_producer
from raftlog.records.control import Marker
from raftlog.types import Offset
from raftlog.wire.bodies import PartitionDescription
from raftlog.wire.limits import TRANSACTION_MS_MAX
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of
from tests.helpers.transactional import TransactionalProducer, committed, coordinating, visible_values
from tests.helpers.virtual_time import eventually
from transactions.coordinator import Markers
from transactions.records import TOPIC, Handle, State
from transactions.requests import AbortOpen, End, Prepare


@in_virtual_time_with(PartitionCluster)
async def test_a_reader_of_committed_records_sees_committed_transactions(cluster: PartitionCluster) -> None:
    # requirement: D3
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a", b"b")
    plain = await cluster.any.gateway.fetch(ORDERS, fetch_from(0))
    assert values_of(plain.data) == [b"a", b"b"]
    assert plain.last_stable_offset == 0
    hidden = await committed(cluster.any)
    assert (bytes(hidden.data), hidden.next_offset, hidden.high_watermark) == (b"", 0, 2)
    assert await producer.commit()
    result = await committed(cluster.any)
    assert visible_values(result) == [b"a", b"b"]
    assert (result.next_offset, result.last_stable_offset) == (3, 3)


# requirement: P4
@in_virtual_time_with(PartitionCluster)
async def test_a_broken_link_between_the_leader_and_the_coordinators_stops_no_transaction(
    cluster: PartitionCluster,
) -> None:
    """The partition joins, and the group takes its offsets and hears of the end, through the third broker."""
    client = await cluster.controller_broker()
    leader, coordinator = (broker for broker in cluster if broker is not client)
    producer = await TransactionalProducer(client).open()
    await client.groups.service.ready(timeout_ms=5_000)
    await cluster.lead(coordinator.node_id, TOPIC)
    await cluster.lead(leader.node_id, OFFSETS)
    await cluster.lead(leader.node_id)
    cluster.network.cut_both(leader.node_id, coordinator.node_id)
    await producer.write(b"a")
    await producer.add_offset("g", 7)
    assert await producer.commit()
    assert visible_values(await committed(client)) == [b"a"]
    for broker in cluster:
        view = await broker.groups.offsets.view("g", timeout_ms=5_000)
        assert [offset.offset for _, _, offset in view.offsets] == [7]
        assert [found.group for found in await broker.groups.service.list_groups()] == ["g"]


@in_virtual_time_with(PartitionCluster)
async def test_an_aborted_transaction_is_never_seen(cluster: PartitionCluster) -> None:
    # requirement: D3
    producer = await TransactionalProducer(cluster.any).open()
    other = await TransactionalProducer(cluster.any, "copy-2").open()
    await producer.write(b"a")
    await cluster.any.gateway.append(ORDERS, batch_of(b"plain"), acks=QUORUM, timeout_ms=1_000)
    await other.write(b"other")
    assert not await producer.abort()
    assert await other.commit()
    await producer.write(b"b")
    assert await producer.commit()
    result = await committed(cluster.any)
    assert visible_values(result) == [b"plain", b"other", b"b"]
    gap = split_batches(result.data)[0].header
    assert gap.is_gap
    assert (gap.base_offset, gap.last_offset) == (0, 0)


@in_virtual_time_with(lambda: PartitionCluster(config={"message.timestamp.type": "CreateTime"}))
async def test_a_time_is_not_that_of_an_aborted_record(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"aborted")  # at 1000
    for timestamp_ms in (500, 800):
        body = batch_of(b"plain", timestamp_ms=timestamp_ms)
        await cluster.any.gateway.append(ORDERS, body, acks=QUORUM, timeout_ms=1_000)
    assert not await producer.abort()
    gateway = cluster.any.gateway
    assert await gateway.offset_at(ORDERS, AtTime(700), committed_only=True) == (2, 800)
    assert await gateway.offset_at(ORDERS, AtTime(700), committed_only=False) == (0, 1_000)
    assert await gateway.offset_at(ORDERS, Start.EARLIEST, committed_only=True) == (0, None)


@in_virtual_time_with(PartitionCluster)
async def test_batches_without_a_sequence_are_stored_until_the_marker(cluster: PartitionCluster) -> None:
    # requirement: D3
    producer = await TransactionalProducer(cluster.any).open()
    body = producer.unsequenced(b"a")
    await producer.send(body)
    await asyncio.gather(producer.write(b"b"), producer.send(body), producer.write(b"c"))
    await producer.send(body)
    await producer.write(b"e")
    late = producer.unsequenced(b"late")
    assert await producer.commit()
    with pytest.raises(ProducerFenced):
        await producer.send(late)
    await producer.send(producer.unsequenced(b"d"))
    assert await producer.commit()
    result = await committed(cluster.any)
    assert Counter(visible_values(result)) == Counter([b"a", b"a", b"a", b"b", b"c", b"d", b"e"])


@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_accepts_no_less_than_a_quorum(cluster: PartitionCluster) -> None:
    # requirement: D3
    producer = await TransactionalProducer(cluster.any).open()
    for acks in ("0", "1"):
        with pytest.raises(InvalidRequest, match="acks"):
            await cluster.any.gateway.append(
                ORDERS,
                producer.unsequenced(b"a"),
                acks=Acks.parse(acks),
                timeout_ms=1_000,
                transactional_id=producer.name,
            )


@in_virtual_time_with(PartitionCluster)
async def test_a_long_poll_of_committed_records_ends_with_the_transaction(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(
        cluster.any.gateway.fetch(ORDERS, fetch_from(0, committed_only=True, wait_ms=20_000))
    )
    await asyncio.sleep(1)
    assert not waiting.done()
    began_s = loop.time()
    await producer.commit()
    assert visible_values(await waiting) == [b"a"]
    assert loop.time() - began_s < 1


@in_virtual_time_with(PartitionCluster)
async def test_a_reader_from_the_end_gets_what_is_committed_later(cluster: PartitionCluster) -> None:
    # requirement: D3
    await cluster.any.gateway.append(ORDERS, batch_of(b"old"), acks=QUORUM, timeout_ms=1_000)
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"open")
    await cluster.any.gateway.append(ORDERS, batch_of(b"plain"), acks=QUORUM, timeout_ms=1_000)
    for broker in cluster:
        assert await broker.gateway.offset_at(ORDERS, Start.LATEST) == (1, None)
        assert (await broker.gateway.offset_at(ORDERS, LastRecords(1)))[0] == 0
        assert await broker.gateway.offset_at(ORDERS, Start.LATEST, committed_only=False) == (3, None)
    await producer.commit()
    request = FetchRequest(position=Offset(1))
    assert visible_values(await cluster.any.gateway.fetch(ORDERS, request)) == [b"open", b"plain"]
    assert await cluster.any.gateway.offset_at(ORDERS, Start.LATEST) == (4, None)


@in_virtual_time_with(PartitionCluster)
async def test_the_newest_records_are_counted_without_markers_and_what_is_hidden(
    cluster: PartitionCluster,
) -> None:
    # requirement: C2
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a", b"b", b"c")
    await producer.commit()
    await producer.write(b"gone")
    await producer.abort()
    for count, offset, committed_only in ((1, 2, True), (2, 1, True), (9, 0, True), (2, 2, False)):
        for broker in cluster:
            position = LastRecords(count)
            found, _ = await broker.gateway.offset_at(ORDERS, position, committed_only=committed_only)
            request = FetchRequest(position=position, committed_only=committed_only)
            fetched = await broker.gateway.fetch(ORDERS, request)
            assert (found, fetched.offset, fetched.next_offset) == (offset, offset, 6)


@in_virtual_time_with(PartitionCluster)
async def test_committed_records_can_be_read_from_the_earliest_offset(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    await producer.commit()
    leader = await cluster.leader()
    leader.orders.machine.transactions.known_from = 1
    assert (await leader.gateway.offset_at(ORDERS, Start.EARLIEST))[0] == 1
    assert (await leader.gateway.offset_at(ORDERS, Start.EARLIEST, committed_only=False))[0] == 0


@in_virtual_time_with(PartitionCluster)
async def test_batches_without_their_transaction_are_refused(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    gateway = cluster.any.gateway

    async def send(body: bytes, transactional_id: str | None) -> None:
        await gateway.append(ORDERS, body, acks=QUORUM, timeout_ms=1_000, transactional_id=transactional_id)

    with pytest.raises(InvalidRequest):
        await send(producer.body(b"a"), None)
    with pytest.raises(InvalidRequest):
        await send(batch_of(b"plain"), producer.name)
    with pytest.raises(InvalidRequest):
        await send(batch_of(b"plain") + producer.body(b"a"), producer.name)
    with pytest.raises(TransactionNotFound):
        await send(producer.body(b"a"), "nobody")
    producer.sequences.clear()
    await producer.write(b"a")
    plain = with_producer(batch_of(b"b"), producer.handle.producer_id, producer.handle.epoch, 1)
    with pytest.raises(InvalidRequest):
        await send(plain, None)
    assert await producer.commit()
    assert visible_values(await committed(cluster.any)) == [b"a"]


@in_virtual_time_with(PartitionCluster)
async def test_an_end_of_an_unknown_transaction_is_never_refused(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    with pytest.raises(OutcomeForgotten):
        await producer.ask(End(transaction=Handle("nobody", 1, 1), is_commit=True))
    first = producer.handle
    for value in (b"a", b"b"):
        await producer.write(value)
        assert await producer.commit()
    with pytest.raises(OutcomeForgotten):
        await producer.ask(End(transaction=first, is_commit=False))


async def test_retention_stops_at_an_open_transaction() -> None:
    # requirement: D3, RT2
    config: dict[str, int | str] = {"segment.ms": 50, "retention.ms": 50}
    async with PartitionCluster(config=config) as cluster:
        producer = await TransactionalProducer(cluster.any).open()
        await cluster.any.gateway.append(ORDERS, batch_of(b"old"), acks=QUORUM, timeout_ms=1_000)

        async def log_start() -> int:
            for _ in range(3):
                await asyncio.sleep(0.1)
                await cluster.any.gateway.append(ORDERS, batch_of(b"new"), acks=QUORUM, timeout_ms=1_000)
                for broker in cluster:
                    await broker.retention.look()
            return int((await cluster.leader()).orders.group.log.first_index)

        assert await log_start() > 0
        first = (await producer.write(b"a")).base_offset
        held = await log_start()
        assert held <= first
        assert await log_start() == held
        assert await producer.commit()
        assert await log_start() > first


@in_virtual_time_with(PartitionCluster)
async def test_a_partition_that_is_deleted_holds_no_transaction_open(cluster: PartitionCluster) -> None:
    await cluster.create("bills")
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    await producer.write(b"b", topic="bills")
    await cluster.any.controller.delete_topic("bills", expected_version=None, timeout_ms=5_000)
    assert await producer.commit()
    assert visible_values(await committed(cluster.any)) == [b"a"]


@in_virtual_time_with(PartitionCluster)
async def test_a_marker_is_written_once_and_refuses_what_is_older(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    replica = (await cluster.leader()).orders
    marker = Marker(producer.handle.producer_id, producer.handle.epoch, True, 1, 0)
    await asyncio.gather(*(replica.mark(marker, timeout_ms=1_000) for _ in range(3)))
    await replica.mark(marker, timeout_ms=1_000)
    assert replica.high_watermark == 2
    with pytest.raises(ProducerFenced):
        await producer.write(b"b")
    assert await producer.state() is State.ONGOING  # its coordinator ends it in its own time
    assert await producer.commit()
    assert replica.high_watermark == 2


@in_virtual_time_with(PartitionCluster)
async def test_committed_records_below_forgotten_ranges_are_out_of_range(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    await producer.commit()
    leader = await cluster.leader()
    leader.orders.machine.transactions.known_from = 2
    with pytest.raises(OffsetOutOfRange) as refused:
        await committed(leader)
    assert refused.value.details["start"] == 2


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


async def lose(cluster: PartitionCluster, producer: TransactionalProducer, *, is_commit: bool) -> None:
    """End a transaction; its markers are lost."""
    coordinator = next(broker for broker in cluster if coordinating(broker)).transactions.coordinators[0]
    markers: Markers = coordinator._markers
    coordinator._markers = InstantMarkers()  # acknowledged, and written nowhere
    assert await (producer.commit() if is_commit else producer.abort()) is is_commit
    coordinator._markers = markers


async def look_for_markers(cluster: PartitionCluster, times: int) -> ControlledBroker:
    """Let each broker look for lost markers, as it does now and then."""
    for _ in range(times):
        for broker in cluster:
            await broker.transactions.lost_markers.look()
    return await cluster.leader()


# requirement: D3
async def test_a_leader_learns_the_outcome_of_a_transaction_whose_marker_is_lost() -> None:
    for is_commit in (True, False):
        async with PartitionCluster() as cluster:
            producer = await TransactionalProducer(cluster.any).open()
            await producer.write(b"a")
            await lose(cluster, producer, is_commit=is_commit)
            await cluster.any.gateway.append(ORDERS, batch_of(b"plain"), acks=QUORUM, timeout_ms=1_000)
            leader = await look_for_markers(cluster, 1)
            assert visible_values(await committed(leader)) == [], "it may be a young one"
            leader = await look_for_markers(cluster, 1)
            assert visible_values(await committed(leader)) == [b"a"] * is_commit + [b"plain"]
            end = leader.orders.high_watermark
            await look_for_markers(cluster, 3)
            assert leader.orders.high_watermark == end


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_whose_outcome_is_forgotten_is_aborted(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"a")
    await lose(cluster, producer, is_commit=True)
    for _ in range(2):
        await producer.commit()
    leader = await look_for_markers(cluster, 2)
    assert visible_values(await committed(leader)) == []
    await producer.write(b"b")
    await producer.commit()
    assert visible_values(await committed(leader)) == [b"b"]


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_a_transaction_that_is_open_at_its_coordinator_stays_open(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any, timeout_ms=900_000).open()
    await producer.write(b"a")
    leader = await look_for_markers(cluster, 4)
    assert visible_values(await committed(leader)) == []
    await producer.write(b"b")
    assert await producer.commit()
    assert visible_values(await committed(leader)) == [b"a", b"b"]


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_a_later_transaction_decides_nothing_about_a_lost_marker(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"aborted")
    await lose(cluster, producer, is_commit=False)
    await producer.write(b"b")
    assert await producer.commit()
    assert visible_values(await committed(cluster.any)) == [b"b"]


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

    async def write(self, *args: Any, **named: Any) -> None:  # noqa: ANN401  # handed on
        """See the port."""
        if not self.is_open:
            raise NoLeader("an election is under way")
        await self._markers.write(*args, **named)


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
            PartitionDescription(
                number, 1, 1, [1], [], [1], 9, 0, 10, 10, 0, last_stable_offset=4, readers_held_ms=held_ms
            ),
        )
    assert health.held_back == ["orders/1"]
    assert health.problems == [
        "orders/1 shows nothing from offset 4 on: a transaction is open for 20 minutes; "
        "see `raftlog transaction list`"
    ]
