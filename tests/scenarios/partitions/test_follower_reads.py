"""Reads at any replica with bounded staleness: what it may show, when it refuses, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from msgspec.structs import replace

from partitions.metadata.move_planner import MoveReplicas
from partitions.replica import reads, selection
from partitions.routing import rpc
from partitions.routing.partition_calls import READ_INDEX
from partitions.values import FetchRequest, FetchResult, LastRecords, Start
from raftlog.errors import (
    InvalidRequest,
    NotLeader,
    OffsetOutOfRange,
    RaftlogError,
    ReplicaNotInSync,
    TopicNotFound,
)
from raftlog.node.rpc import handler_of
from raftlog.types import Index, NodeId, Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster, PartitionCluster
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of
from tests.helpers.tagged import tagged, tagged_batch
from tests.helpers.transactional import TransactionalProducer, visible_values
from tests.helpers.virtual_time import eventually

# requirement: RP10

STALENESS_MS = 1_000


def stale(
    position: int, *, wait_ms: int = 0, min_offset: int = 0, committed_only: bool = True
) -> FetchRequest:
    """A read that only the replica of the asked broker may serve."""
    return replace(
        fetch_from(position, wait_ms=wait_ms, committed_only=committed_only),
        max_staleness_ms=STALENESS_MS,
        min_offset=Offset(min_offset),
        is_local=True,
    )


async def follower_of(cluster: PartitionCluster) -> tuple[ControlledBroker, ControlledBroker]:
    """A leader with one record, and a follower that knows it."""
    leader = await cluster.leader()
    await leader.append(batch_of(b"a"))
    follower = cluster.followers(leader)[0]
    await eventually(lambda: follower.orders.high_watermark == 1)
    return leader, follower


@in_virtual_time_with(PartitionCluster)
async def test_a_follower_serves_what_is_committed_and_says_that_it_has(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    result = await follower.gateway.fetch(ORDERS, stale(0))
    assert values_of(result.data) == [b"a"]
    assert (result.next_offset, result.high_watermark, result.served_by) == (1, 1, follower.node_id)
    by_default = await follower.gateway.fetch(ORDERS, fetch_from(0))
    assert by_default.served_by == leader.node_id
    for position in (Start.LATEST, LastRecords(1)):
        found = await follower.gateway.fetch(ORDERS, replace(stale(0), position=position))
        assert found.served_by == follower.node_id
        assert found.next_offset == 1


@in_virtual_time_with(PartitionCluster)
async def test_a_follower_waits_until_it_has_applied_what_its_leader_has_committed(
    cluster: PartitionCluster,
) -> None:
    leader, follower = await follower_of(cluster)

    async def ask(node: NodeId) -> Index:
        return Index(1)  # the leader has committed one more record

    await asyncio.sleep(2 * STALENESS_MS / 1000)  # what it has proved before is too old
    reading = asyncio.create_task(follower.orders.fetch(stale(0), ask))
    await asyncio.sleep(0.2)
    assert not reading.done()
    await leader.append(batch_of(b"b"))
    assert values_of((await reading).data) == [b"a", b"b"]


# requirement: RP4
@in_virtual_time_with(PartitionCluster)
async def test_a_follower_shows_nothing_beyond_its_commit_index(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    for other in cluster.followers(leader):
        other.disk.clear()
    pending = asyncio.create_task(leader.append(batch_of(b"open")))
    await eventually(lambda: follower.orders.group.last_index == 1)
    result = await follower.gateway.fetch(ORDERS, stale(0))
    assert (values_of(result.data), result.high_watermark) == ([b"a"], 1)
    for other in cluster.followers(leader):
        other.disk.set()
    await pending
    newer = await follower.gateway.fetch(ORDERS, stale(1, wait_ms=2_000))
    assert values_of(newer.data) == [b"open"]


@in_virtual_time_with(PartitionCluster)
async def test_a_follower_that_is_cut_off_serves_until_it_is_too_stale(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    await follower.gateway.fetch(ORDERS, stale(0))
    cluster.network.isolate(follower.node_id)
    await leader.append(batch_of(b"b"))
    assert values_of((await follower.gateway.fetch(ORDERS, stale(0))).data) == [b"a"]
    await asyncio.sleep(STALENESS_MS / 1000)
    with pytest.raises(ReplicaNotInSync) as refused:
        await follower.gateway.fetch(ORDERS, stale(0))
    assert refused.value.details["replica"] == follower.node_id
    assert refused.value.is_definite
    assert refused.value.retryable
    cluster.network.heal_all()
    await eventually(lambda: follower.orders.high_watermark == 2)
    assert values_of((await follower.gateway.fetch(ORDERS, stale(0))).data) == [b"a", b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_a_poll_at_a_follower_ends_when_it_is_too_stale(cluster: PartitionCluster) -> None:
    _, follower = await follower_of(cluster)
    began = asyncio.get_running_loop().time()
    polling = asyncio.create_task(follower.gateway.fetch(ORDERS, stale(1, wait_ms=60_000)))
    await eventually(lambda: follower.orders.parked == 1)
    cluster.network.isolate(follower.node_id)
    with pytest.raises(ReplicaNotInSync):
        await polling
    assert asyncio.get_running_loop().time() - began < 4
    assert follower.orders.parked == 0


# requirement: C3
@in_virtual_time_with(PartitionCluster)
async def test_a_poll_at_a_follower_waits_longer_than_its_staleness(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    polling = asyncio.create_task(follower.gateway.fetch(ORDERS, stale(1, wait_ms=20_000)))
    await asyncio.sleep(3)
    assert not polling.done()
    await leader.append(batch_of(b"b"))
    result = await polling
    assert (values_of(result.data), result.served_by) == ([b"b"], follower.node_id)
    empty = await follower.gateway.fetch(ORDERS, stale(2, wait_ms=2_500))
    assert (empty.data, empty.next_offset, empty.served_by) == (b"", 2, follower.node_id)


@in_virtual_time_with(lambda: ControlledCluster(brokers=5))
async def test_a_deposed_leader_that_does_not_know_it_proves_nothing(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 1, 5)
    leader = await cluster.leader()
    await leader.append(batch_of(b"a"))
    follower, *rest = [broker for broker in cluster if broker is not leader]
    await _until_served(follower, stale(0, min_offset=1))
    for broker in rest:
        cluster.network.cut_both(leader.node_id, broker.node_id)
        cluster.network.cut_both(follower.node_id, broker.node_id)
    loop = asyncio.get_running_loop()
    cut_at, served_at, bound_ms = loop.time(), 0.0, 20  # the leader steps down after 48 ms
    while loop.time() < cut_at + 0.5:
        for broker in (leader, follower):
            with contextlib.suppress(RaftlogError, TimeoutError):
                request = replace(stale(0), max_staleness_ms=bound_ms)
                await asyncio.wait_for(broker.gateway.fetch(ORDERS, request), 0.05)
                served_at = loop.time()
        await asyncio.sleep(0.001)
    assert served_at - cut_at <= bound_ms / 1000


@in_virtual_time_with(PartitionCluster)
async def test_min_offset_is_waited_for_and_shows_a_reader_its_own_write(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    await follower.gateway.fetch(ORDERS, stale(0))
    for value in (b"b", b"c", b"d"):
        receipt = await leader.append(batch_of(value))
        request = stale(0, min_offset=receipt.base_offset + 1)
        result = await follower.gateway.fetch(ORDERS, request)
        assert values_of(result.data)[-1] == value
        assert result.served_by == follower.node_id


@in_virtual_time_with(PartitionCluster)
async def test_min_offset_beyond_the_end_is_refused_in_time(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    loop = asyncio.get_running_loop()
    for wait_ms, least_s in ((0, 0.4), (2_000, 1.9)):
        began = loop.time()
        with pytest.raises(ReplicaNotInSync):
            await follower.gateway.fetch(ORDERS, stale(0, min_offset=5, wait_ms=wait_ms))
        assert least_s < loop.time() - began < least_s + 2
    with pytest.raises(OffsetOutOfRange, match="min_offset 5"):
        await leader.gateway.fetch(ORDERS, replace(fetch_from(0), min_offset=Offset(5)))
    with pytest.raises(OffsetOutOfRange, match="min_offset 5"):  # falls back, and gets the leader's word
        await follower.gateway.fetch(ORDERS, replace(stale(0, min_offset=5), is_local=False))


@in_virtual_time_with(PartitionCluster)
async def test_a_follower_does_not_judge_an_offset_that_it_lacks(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    with pytest.raises(ReplicaNotInSync):
        await follower.gateway.fetch(ORDERS, stale(7))
    with pytest.raises(OffsetOutOfRange):
        await leader.gateway.fetch(ORDERS, stale(7))


# requirement: RT4
@in_virtual_time_with(PartitionCluster)
async def test_deleted_records_are_not_served_and_the_leader_says_so(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    await leader.append(batch_of(b"b"))
    await leader.gateway.delete_before(ORDERS, Offset(1), timeout_ms=2_000)
    await asyncio.sleep(STALENESS_MS / 1000 + 0.1)
    with pytest.raises(ReplicaNotInSync):
        await follower.gateway.fetch(ORDERS, stale(0))
    with pytest.raises(OffsetOutOfRange) as below:
        await follower.gateway.fetch(ORDERS, replace(stale(0), is_local=False))
    assert below.value.details["start"] == 1
    assert values_of((await follower.gateway.fetch(ORDERS, stale(1))).data)[:1] == [b"b"]


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_a_follower_hides_open_and_aborted_transactions(cluster: PartitionCluster) -> None:
    _, follower = await follower_of(cluster)
    producer = await TransactionalProducer(cluster.any).open()
    await producer.write(b"open")
    hidden = await follower.gateway.fetch(ORDERS, stale(1, min_offset=0, wait_ms=300))
    assert (bytes(hidden.data), hidden.next_offset) == (b"", 1)
    assert await producer.commit()
    shown = await follower.gateway.fetch(ORDERS, stale(1, min_offset=2))
    assert visible_values(shown) == [b"open"]
    assert shown.served_by == follower.node_id
    await producer.write(b"never")
    await producer.abort()
    rest = await follower.gateway.fetch(ORDERS, stale(3, min_offset=4, wait_ms=2_000))
    assert visible_values(rest) == []
    assert rest.next_offset >= 4


@in_virtual_time_with(PartitionCluster)
async def test_a_reader_of_tags_waits_at_a_follower_and_looks_at_a_bounded_part_of_the_log(
    cluster: PartitionCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = await follower_of(cluster)
    request = replace(stale(1, wait_ms=10_000), tags=("paid",))
    reading = asyncio.create_task(follower.gateway.fetch(ORDERS, request))
    await asyncio.sleep(2.5)
    await leader.append(tagged_batch(tagged(b"b", "paid")))
    result = await reading
    assert (values_of(result.data), result.served_by) == ([b"b"], follower.node_id)
    for number in range(20):
        await leader.append(tagged_batch(tagged(b"%d" % number, "open")))
    monkeypatch.setattr(selection, "LOOKED_AT_BYTES_MAX", 300)
    monkeypatch.setattr(reads, "STEP_BYTES", 100)
    began = asyncio.get_running_loop().time()
    some = await follower.gateway.fetch(ORDERS, replace(request, position=Offset(2), min_offset=Offset(22)))
    assert (some.data, asyncio.get_running_loop().time() - began < 1) == (b"", True)
    assert 2 < some.next_offset < some.end == 22


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_replica_that_is_no_voter_or_gone_does_not_serve(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    far = cluster.brokers[NodeId(4)]
    with pytest.raises(NotLeader, match="no replica"):
        await far.gateway.fetch(ORDERS, stale(0))
    others = [node for node in cluster.replicas if node != follower.node_id]
    await leader.admin.change_replicas(MoveReplicas("orders", 0, replicas=tuple(others)), 5_000)
    assert await leader.admin.until_settled(ORDERS, 10_000)
    await eventually(lambda: ("orders", 0) not in follower.manager.replicas)
    with pytest.raises(NotLeader):
        await follower.gateway.fetch(ORDERS, stale(0))


@in_virtual_time_with(PartitionCluster)
async def test_a_follower_that_restarts_proves_anew_what_it_knows(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    await follower.gateway.fetch(ORDERS, stale(0))
    await cluster.stop(follower.node_id)
    await leader.append(batch_of(b"b"))
    again = await cluster.start(follower.node_id)
    await eventually(lambda: ("orders", 0) in again.manager.replicas)
    result = await _until_served(again, stale(0))
    assert values_of(result.data) == [b"a", b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_many_readers_share_one_proof(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    asked = _count_proofs(leader)
    for _ in range(20):
        await asyncio.gather(*(follower.gateway.fetch(ORDERS, stale(0)) for _ in range(50)))
        await asyncio.sleep(0.1)  # 2 s together
    assert 2 <= len(asked) <= 6, "one each half staleness"


@in_virtual_time_with(PartitionCluster)
async def test_staleness_counts_from_the_question_not_from_the_answer(cluster: PartitionCluster) -> None:
    leader, follower = await follower_of(cluster)
    _count_proofs(leader, answers_after_s=0.4)
    await follower.gateway.fetch(ORDERS, stale(0))
    cluster.network.isolate(follower.node_id)
    await asyncio.sleep(0.55)
    await follower.gateway.fetch(ORDERS, stale(0))
    await asyncio.sleep(0.1)
    with pytest.raises(ReplicaNotInSync):
        await follower.gateway.fetch(ORDERS, stale(0))


@in_virtual_time_with(PartitionCluster)
async def test_a_topic_that_is_deleted_ends_a_read_at_a_follower(cluster: PartitionCluster) -> None:
    _, follower = await follower_of(cluster)
    polling = asyncio.create_task(follower.gateway.fetch(ORDERS, stale(1, wait_ms=60_000)))
    await eventually(lambda: follower.orders.parked == 1)
    await cluster.any.controller.delete_topic("orders", expected_version=None, timeout_ms=2_000)
    with pytest.raises(TopicNotFound):
        await polling


# requirement: RP11
@in_virtual_time_with(lambda: ControlledCluster(brokers=4, racks=["a", "b", "c", "c"]))
async def test_the_replica_in_the_readers_rack_is_asked(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader()
    await leader.append(batch_of(b"x"))
    rows = cluster.any.controller.image.topics["orders"].partitions[0].replicas
    for broker in cluster:
        for rack in ("a", "b", "c"):
            request = replace(stale(0, min_offset=1), is_local=False, rack=rack)
            result = await broker.gateway.fetch(ORDERS, request)
            near = [node for node in rows if cluster.racks[node] == rack]
            assert result.served_by in near, (broker.node_id, rack, rows)
        own = await broker.gateway.fetch(ORDERS, replace(stale(0), is_local=False))
        assert cluster.racks[own.served_by or NodeId(0)] == cluster.racks[broker.node_id]
    with pytest.raises(InvalidRequest, match="send one of a, b, c") as unknown:
        await leader.gateway.fetch(ORDERS, replace(stale(0), is_local=False, rack="d"))
    assert unknown.value.details["field"] == "rack"


@in_virtual_time_with(lambda: ControlledCluster(brokers=3, racks=["a", "b", "c"]))
async def test_a_replica_that_cannot_serve_is_avoided_for_a_while(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader()
    await leader.append(batch_of(b"x"))
    follower = next(broker for broker in cluster if broker is not leader)
    request = replace(stale(0), is_local=False, rack=cluster.racks[follower.node_id])
    assert (await leader.gateway.fetch(ORDERS, request)).served_by == follower.node_id
    cluster.network.isolate(follower.node_id)
    served = [await leader.gateway.fetch(ORDERS, request)]
    assert served[0].served_by == leader.node_id
    cluster.network.heal_all()
    await asyncio.sleep(1)
    assert (await leader.gateway.fetch(ORDERS, request)).served_by == leader.node_id, "not yet again"
    await asyncio.sleep(5)
    assert (await leader.gateway.fetch(ORDERS, request)).served_by == follower.node_id


async def _until_served(broker: ControlledBroker, request: FetchRequest) -> FetchResult:
    while True:
        try:
            return await broker.gateway.fetch(ORDERS, request)
        except RaftlogError:
            await asyncio.sleep(0.02)


def _count_proofs(leader: ControlledBroker, *, answers_after_s: float = 0.0) -> list[NodeId]:
    """The brokers that ask this leader for a read index from now on."""
    asked: list[NodeId] = []

    async def read_index(sender: NodeId, ask: rpc.ReadIndex) -> Index:
        asked.append(sender)
        index = await leader.gateway.local.carry_out(READ_INDEX, ask)
        await asyncio.sleep(answers_after_s)
        return index

    leader.host.calls.serve(READ_INDEX.service, handler_of(rpc.ReadIndex, read_index))
    return asked
