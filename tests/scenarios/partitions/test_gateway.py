"""Any partition from any broker: finding the leader, one hop, and what may be asked twice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

import pytest
from msgspec import Struct

from partitions.routing import rpc
from partitions.routing.gateway import Gateway
from partitions.routing.partition_calls import CALLS, Placed
from partitions.routing.relay import Relayed
from partitions.values import QUORUM, Acks, AppendReceipt, AtTime, FetchRequest, LastRecords, Start
from raftlog.errors import (
    CommitUnknown,
    ConnectionLost,
    InvalidRequest,
    NoLeader,
    NotLeader,
    OffsetOutOfRange,
    Overloaded,
    PartitionNotFound,
    RecordTooLarge,
    StorageFull,
    TopicNotFound,
)
from raftlog.node.rpc import decode_body, encode_body, handler_of
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.records.batch import split_batches
from raftlog.records.control import Archived, Marker
from raftlog.records.reader import read_records
from raftlog.types import GroupId, NodeId, Offset, Term, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PRODUCER, ControlledBroker, PartitionCluster
from tests.helpers.orders import ORDERS, batch_of, values_of
from tests.helpers.virtual_time import eventually


async def append(
    broker: ControlledBroker, body: bytes, *, acks: str = "quorum", timeout_ms: int = 3_000
) -> AppendReceipt:
    return await broker.gateway.append(ORDERS, body, acks=Acks.parse(acks), timeout_ms=timeout_ms)


def fetch_from(position: int, *, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(position=Offset(position), wait_ms=wait_ms)


@in_virtual_time_with(lambda: PartitionCluster(5))
async def test_every_broker_serves_every_partition(cluster: PartitionCluster) -> None:
    # requirement: P4, T7
    body = batch_of(b"a", b"b")
    for number, broker in enumerate(cluster.brokers.values()):
        receipt = await append(broker, body)
        assert receipt.base_offset == 2 * number
    for broker in cluster.brokers.values():
        result = await broker.gateway.fetch(ORDERS, FetchRequest(position=Start.EARLIEST))
        assert (result.next_offset, result.high_watermark) == (10, 10)
        assert len(result.data) == 5 * len(body)
        assert (await broker.gateway.offset_at(ORDERS, Start.LATEST))[0] == 10
        assert broker.gateway.leader_of(ORDERS) == (await cluster.leader()).node_id


# requirement: P4
@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_leader_behind_a_broken_link_is_reached_through_another_broker(
    cluster: PartitionCluster,
) -> None:
    leader, outside = await cluster.leader(), cluster.brokers[NodeId(4)]
    cluster.network.cut_both(leader.node_id, outside.node_id)
    receipt = await append(outside, batch_of(b"a"))
    result = await outside.gateway.fetch(ORDERS, FetchRequest(position=Start.EARLIEST))
    assert (receipt.base_offset, values_of(result.data)) == (0, [b"a"])
    assert (await outside.gateway.offset_at(ORDERS, Start.LATEST))[0] == 1
    [status] = await outside.gateway.describe("orders")
    assert status.leader == leader.node_id
    with pytest.raises(OffsetOutOfRange):
        await outside.gateway.fetch(ORDERS, fetch_from(7))


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_relayed_append_whose_answer_is_lost_is_in_doubt(cluster: PartitionCluster) -> None:
    leader, outside = await cluster.leader(), cluster.brokers[NodeId(4)]
    for other in cluster:
        if other is not leader:
            cluster.network.delay(leader.node_id, other.node_id, 1.0)
    cluster.network.cut_both(leader.node_id, outside.node_id)
    asking = asyncio.create_task(append(outside, batch_of(b"a")))
    await asyncio.sleep(0.1)
    for other in cluster:
        if other not in (leader, outside):
            cluster.network.cut_both(leader.node_id, other.node_id)
    with pytest.raises(CommitUnknown):
        await asking


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_relayed_long_poll_takes_no_room_from_fetches_that_are_answered_at_once(
    cluster: PartitionCluster,
) -> None:
    # requirement: C4
    leader, outside = await cluster.leader(), cluster.brokers[NodeId(4)]
    relay = min(
        (broker for broker in cluster if broker not in (leader, outside)), key=lambda each: each.node_id
    )
    cluster.network.cut_both(leader.node_id, outside.node_id)
    await append(outside, batch_of(b"a"))
    poll = asyncio.create_task(outside.gateway.fetch(ORDERS, fetch_from(1, wait_ms=60_000)))
    served = [broker.host.calls._served for broker in (relay, leader)]
    await eventually(lambda: all(each[CallClass.LONG_POLL] == 1 for each in served))
    assert not any(each[CallClass.FETCH] for each in served)
    await append(outside, batch_of(b"b"))
    assert values_of((await poll).data) == [b"b"]


# requirement: T2 T7
@in_virtual_time_with(PartitionCluster)
async def test_records_are_in_the_named_topic_and_stay_when_read(cluster: PartitionCluster) -> None:
    await cluster.create("payments")
    topics = {"orders": [b"o1", b"o2"], "payments": [b"p1"]}
    for topic, values in topics.items():
        target = TopicPartition(topic, 0)
        await cluster.any.gateway.append(target, batch_of(*values), acks=QUORUM, timeout_ms=3_000)
    for _ in range(3):  # readers, one after another
        for topic, values in topics.items():
            result = await cluster.any.gateway.fetch(TopicPartition(topic, 0), fetch_from(0))
            assert values_of(result.data) == values
            assert (result.log_start_offset, result.next_offset) == (0, len(values))


@in_virtual_time_with(lambda: PartitionCluster(3))
async def test_only_the_partitions_that_are_asked_for_are_described(cluster: PartitionCluster) -> None:
    await cluster.create_with("many", 5, 3, {})
    describe = cluster.any.gateway.describe
    assert [status.partition for status in await describe("many", {1, 3})] == [1, 3]
    assert await describe("many", ()) == []
    assert [status.partition for status in await describe("many")] == [0, 1, 2, 3, 4]


@in_virtual_time_with(lambda: PartitionCluster(5))
async def test_the_leaders_refusals_come_through_the_hop_as_they_are(cluster: PartitionCluster) -> None:
    far = cluster.brokers[NodeId(5)]
    with pytest.raises(OffsetOutOfRange) as above:
        await far.gateway.fetch(ORDERS, fetch_from(4))
    assert above.value.details == {"start": 0, "end": 0}
    with pytest.raises(RecordTooLarge):
        await append(far, batch_of(b"x" * (1 << 21)))
    with pytest.raises(InvalidRequest, match="3 replicas"):
        await append(far, batch_of(b"x"), acks="5")
    assert far.gateway.local.bytes_in_flight == 0


@in_virtual_time_with(lambda: PartitionCluster(1))
async def test_unknown_names_are_told_apart(cluster: PartitionCluster) -> None:
    gateway = cluster.brokers[NodeId(1)].gateway
    with pytest.raises(TopicNotFound):
        await gateway.fetch(TopicPartition("other", 0), fetch_from(0))
    with pytest.raises(PartitionNotFound, match="none is 1"):
        await gateway.append(TopicPartition("orders", 1), batch_of(b"a"), acks=QUORUM, timeout_ms=1_000)
    with pytest.raises(TopicNotFound):
        await gateway.describe("other")


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_change_of_leader_during_a_long_poll_goes_unnoticed(cluster: PartitionCluster) -> None:
    # requirement: C3
    leader = await cluster.leader()
    await append(leader, batch_of(b"a"))
    far = cluster.brokers[NodeId(4)]
    request = FetchRequest(position=Start.LATEST, wait_ms=20_000)
    polls = [
        asyncio.create_task(broker.gateway.fetch(ORDERS, request))
        for broker in (far, cluster.followers(leader)[0])
    ]
    await eventually(lambda: leader.orders.parked == 2)
    cluster.network.isolate(leader.node_id)
    new = await cluster.leader(other_than=leader.node_id)
    receipt = await append(new, batch_of(b"b"))
    for result in await asyncio.gather(*polls):
        assert result.offset == 1
        assert result.next_offset >= receipt.base_offset
        assert result.leader_epoch == receipt.leader_epoch


@in_virtual_time_with(PartitionCluster)
async def test_without_a_majority_a_request_is_told_to_come_back(cluster: PartitionCluster) -> None:
    # requirement: F6
    leader = await cluster.leader()
    follower = cluster.followers(leader)[0]
    for broker in cluster.brokers.values():
        cluster.network.isolate(broker.node_id)
    await eventually(lambda: not leader.orders.group.is_leader)
    with pytest.raises(NoLeader) as refused:
        await append(follower, batch_of(b"a"), timeout_ms=100)
    assert refused.value.details["retry_after_ms"]
    assert refused.value.is_definite


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_produce_without_an_answer_is_unknown_and_not_repeated(cluster: PartitionCluster) -> None:
    # requirement: D2
    leader = await cluster.leader()
    far = cluster.brokers[NodeId(4)]
    await append(far, batch_of(b"a"))
    for follower in cluster.followers(leader):
        follower.disk.clear()
    sending = asyncio.create_task(append(far, batch_of(b"b")))
    await eventually(lambda: all(cluster.brokers[n].orders.group.last_index == 1 for n in cluster.replicas))
    cluster.network.isolate(leader.node_id)
    for follower in cluster.followers(leader):
        follower.disk.set()
    with pytest.raises(CommitUnknown) as unknown:
        await sending  # although the next leader would take it
    assert unknown.value.details["committed"] is None


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_produce_with_a_producer_id_is_repeated_and_stored_once(cluster: PartitionCluster) -> None:
    # requirement: D3
    leader = await cluster.leader()
    far = cluster.brokers[NodeId(4)]
    await append(far, batch_of(b"a", producer=PRODUCER, sequence=0))
    for follower in cluster.followers(leader):
        follower.disk.clear()
    sending = asyncio.create_task(append(far, batch_of(b"b", producer=PRODUCER, sequence=1)))
    await eventually(lambda: all(cluster.brokers[n].orders.group.last_index == 1 for n in cluster.replicas))
    cluster.network.isolate(leader.node_id)
    for follower in cluster.followers(leader):
        follower.disk.set()
    receipt = await sending
    new = await cluster.leader(other_than=leader.node_id)
    assert (receipt.base_offset, receipt.was_duplicate) == (1, True)
    assert new.orders.machine.producers.get(PRODUCER) is not None


@in_virtual_time_with(PartitionCluster)
async def test_a_batch_that_a_lost_leader_stamped_is_sent_unstamped(cluster: PartitionCluster) -> None:
    # requirement: D2
    leader = await cluster.leader()
    await append(leader, batch_of(b"before", producer=PRODUCER, sequence=0))
    cluster.network.isolate(leader.node_id)
    body = bytearray(batch_of(b"given away", producer=PRODUCER, sequence=1))
    sending = asyncio.create_task(leader.gateway.append(ORDERS, body, acks=QUORUM, timeout_ms=20_000))
    new = await cluster.leader(other_than=leader.node_id)
    assert split_batches(body)[0].base_offset == 1, "the leader that was cut off has stamped it"
    cluster.network.heal_all()
    receipt = await sending
    assert receipt.leader_epoch > 1
    result = await new.gateway.fetch(ORDERS, fetch_from(0))
    stored = [batch for batch in split_batches(result.data) if not batch.header.is_control]
    values = [record.value for batch in stored for record in read_records(batch)]
    assert values == [b"before", b"given away"]


async def test_a_refusal_that_follows_an_attempt_in_doubt_is_no_failure() -> None:
    # requirement: D2
    told = [CommitUnknown("the leader is gone", committed=None), StorageFull("full", retry_after_ms=1)]

    async def refuse(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, tuple[()]]:
        raise told.pop(0)

    async with PartitionCluster(4) as cluster:
        await cluster.leader()
        for broker in cluster.brokers.values():
            broker.host.calls.serve(rpc.APPEND, refuse)
        with pytest.raises(CommitUnknown):
            await append(cluster.brokers[NodeId(4)], batch_of(b"a", producer=PRODUCER, sequence=0))
        assert told == []


@in_virtual_time_with(PartitionCluster)
async def test_too_many_bytes_on_their_way_are_refused(cluster: PartitionCluster) -> None:
    # requirement: N2
    leader = await cluster.leader()
    body = batch_of(b"a")
    gateway = Gateway(
        leader.node_id,
        leader.controller,
        leader.manager.replicas,
        leader.host.calls,
        bytes_in_flight_max=2 * len(body),
    )
    for broker in cluster.brokers.values():
        broker.disk.clear()
    sending = [
        asyncio.create_task(gateway.append(ORDERS, body, acks=QUORUM, timeout_ms=5_000)) for _ in range(2)
    ]
    await eventually(lambda: gateway.local.bytes_in_flight == 2 * len(body))
    with pytest.raises(Overloaded) as refused:
        await gateway.append(ORDERS, body, acks=QUORUM, timeout_ms=5_000)
    assert refused.value.details["retry_after_ms"]
    sending[0].cancel()
    for broker in cluster.brokers.values():
        broker.disk.set()
    await asyncio.gather(*sending, return_exceptions=True)
    assert gateway.local.bytes_in_flight == 0


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_broker_that_is_asked_by_another_asks_no_further(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    follower = cluster.followers(leader)[0]
    await eventually(lambda: follower.orders.group.leader == leader.node_id)
    calls = cluster.brokers[NodeId(4)].host.calls
    head = encode_body(rpc.Fetch((ORDERS, GroupId(1)), fetch_from(0)))
    with pytest.raises(NotLeader) as refused:
        await calls.call(follower.node_id, rpc.FETCH, head, timeout_ms=1_000)
    assert refused.value.details["leader"] == leader.node_id
    older = encode_body(rpc.Fetch((ORDERS, GroupId(9)), fetch_from(0)))
    with pytest.raises(NotLeader):  # a topic of that name, but not that topic
        await calls.call(leader.node_id, rpc.FETCH, older, timeout_ms=1_000)
    with pytest.raises(InvalidRequest, match="another version"):
        await calls.call(leader.node_id, rpc.FETCH, b"\xc1", timeout_ms=1_000)


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_topic_deleted_during_a_search_is_unknown_at_once(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    far = cluster.brokers[NodeId(4)]
    poll = asyncio.create_task(far.gateway.fetch(ORDERS, fetch_from(0, wait_ms=20_000)))
    await eventually(lambda: leader.orders.parked == 1)
    await leader.controller.delete_topic("orders", expected_version=None, timeout_ms=5_000)
    with pytest.raises(TopicNotFound):
        await poll


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_without_a_leader_any_broker_describes_a_partition(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    await append(leader, batch_of(b"a", b"b"))
    (status,) = await cluster.brokers[NodeId(4)].gateway.describe("orders")
    assert (status.leader, status.in_sync, status.high_watermark) == (leader.node_id, (1, 2, 3), 2)
    for broker in cluster.brokers.values():
        cluster.network.isolate(broker.node_id)
    follower = cluster.followers(leader)[0]
    await eventually(lambda: follower.orders.group.leader is None)
    (status,) = await follower.gateway.describe("orders")
    assert (status.leader, status.in_sync, status.log_end_offset) == (None, (), 2)
    others = {*cluster.replicas} - {follower.node_id}
    assert status.awaited == tuple(sorted(others))
    assert dict(status.offline) == dict.fromkeys(others, "its broker does not answer")
    (status,) = await cluster.brokers[NodeId(4)].gateway.describe("orders")
    assert (status.leader, status.replicas) == (None, (1, 2, 3))
    assert status.awaited == (1, 2, 3)


# requirement: F6
@in_virtual_time_with(lambda: PartitionCluster(3))
async def test_without_a_leader_a_description_says_why(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    one, two = cluster.followers(leader)
    (status,) = await one.gateway.describe("orders")
    assert (status.awaited, status.offline) == ((), ())
    for broker in (leader, two):
        await broker.host.close_group(GroupId(1))
        broker.manager.replicas.clear()
    await eventually(lambda: one.orders.group.leader is None)
    two.why_offline = "its log is damaged"
    for asked in cluster.brokers.values():
        (status,) = await asked.gateway.describe("orders")
        assert status.leader is None
        assert status.awaited == tuple(sorted({leader.node_id, two.node_id}))
        assert dict(status.offline) == {
            leader.node_id: "it is not open",
            two.node_id: "its log is damaged",
        }


async def test_a_forwarded_long_poll_parks_in_slices_and_hears_of_data_in_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # requirement: C3
    monkeypatch.setattr("partitions.routing.gateway.PARK_MS", 20)
    async with PartitionCluster(4) as cluster:
        leader = await cluster.leader()
        replica = leader.orders
        gateway = cluster.brokers[NodeId(4)].gateway
        for ends in ((NodeId(4), leader.node_id), (leader.node_id, NodeId(4))):
            cluster.network.delay(*ends, 0.0005)
        loop = asyncio.get_running_loop()
        began = loop.time()
        empty = await gateway.fetch(ORDERS, fetch_from(0, wait_ms=70))
        assert (empty.data, 0.06 < loop.time() - began < 1) == (b"", True)
        poll = asyncio.create_task(gateway.fetch(ORDERS, fetch_from(0, wait_ms=20_000)))
        await asyncio.sleep(0.05)
        await append(leader, batch_of(b"a"))
        assert (await poll).next_offset == 1
        gone = asyncio.create_task(gateway.fetch(ORDERS, fetch_from(1, wait_ms=20_000)))
        await eventually(lambda: replica.parked == 1)
        gone.cancel()
        await eventually(lambda: replica.parked == 0, within_s=1)


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_produce_during_a_hand_over_ends_at_the_next_leader(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    far = cluster.brokers[NodeId(4)]
    await append(far, batch_of(b"a", producer=PRODUCER, sequence=0))
    successor = cluster.followers(leader)[0]
    leader.orders.group.transfer_leadership(successor.node_id)
    with pytest.raises(NotLeader):  # refused at once: nothing of it may seem to be in flight
        await leader.orders.append(
            batch_of(b"b", producer=PRODUCER, sequence=1), acks=Acks.parse("0"), timeout_ms=1_000
        )
    receipt = await append(far, batch_of(b"b", producer=PRODUCER, sequence=1))
    assert not receipt.was_duplicate
    assert (await cluster.leader()).node_id == successor.node_id


PLACE = ORDERS, GroupId(7)
PLACED = "9282a5746f706963a66f7264657273a9706172746974696f6e0007"
ENDED = Marker(1, 0, is_commit=True, coordinator_epoch=1, log_start=0)
WIRE: Mapping[Service, tuple[Struct, str]] = {
    Service("partition.mark", CallClass.PRODUCE): (
        rpc.Mark(PLACE, marker=ENDED, timeout_ms=900),
        f"93{PLACED}950100c30100cd0384",
    ),
    Service("partition.delete_before", CallClass.PRODUCE): (
        rpc.DeleteBefore(PLACE, offset=Offset(5), timeout_ms=900),
        f"93{PLACED}05cd0384",
    ),
    Service("partition.set_archived", CallClass.PRODUCE): (
        rpc.SetArchived(PLACE, archived=Archived(5), timeout_ms=900),
        f"93{PLACED}9205c2cd0384",
    ),
    Service("partition.offset_at", CallClass.READ): (
        rpc.OffsetAt(PLACE, position=AtTime(9), committed_only=True),
        f"93{PLACED}92a474696d6509c3",
    ),
    Service("partition.read_index", CallClass.READ): (rpc.ReadIndex(PLACE), f"91{PLACED}"),
    Service("partition.transfer", CallClass.REPLICAS): (
        rpc.Transfer(PLACE, to=NodeId(2), timeout_ms=900, term=Term(5)),
        f"94{PLACED}02cd038405",
    ),
    Service("partition.log_end", CallClass.REPLICAS): (rpc.LogEndOf(PLACE), f"91{PLACED}"),
}


def test_brokers_of_other_releases_know_the_names_and_bodies_of_calls() -> None:
    # requirement: P4
    assert [encode_body(body).hex() for body, _ in WIRE.values()] == [wire for _, wire in WIRE.values()]
    declared = {call.service: call.request for call in CALLS}
    assert declared == {service: type(WIRE[service][0]) for service in declared}
    assert WIRE.keys() == {*declared, rpc.TRANSFER, rpc.LOG_END}


@in_virtual_time_with(lambda: PartitionCluster(3))
async def test_every_broker_serves_every_call_and_passes_it_on(cluster: PartitionCluster) -> None:
    # requirement: P4
    unreadable = b"\xc1"
    for asker, third, node in itertools.permutations(cluster.nodes):
        calls = cluster.brokers[asker].host.calls
        for service, (body, _) in WIRE.items():
            with pytest.raises(InvalidRequest, match=type(body).__name__):
                await calls.call(node, service, unreadable, timeout_ms=1_000)
            relayed = Service(f"relayed.{service.name}", service.kind)
            question = encode_body(Relayed(node, unreadable, 1_000))
            with pytest.raises(InvalidRequest, match=type(body).__name__):
                await calls.call(third, relayed, question, timeout_ms=1_000)


@in_virtual_time_with(lambda: PartitionCluster(4))
async def test_a_call_whose_answers_are_lost_is_repeated_and_then_in_doubt(cluster: PartitionCluster) -> None:
    # requirement: D2
    await cluster.leader()
    gateway = cluster.brokers[NodeId(4)].gateway
    asked: list[Placed] = []

    async def lose(sender: NodeId, ask: Placed) -> None:
        asked.append(ask)
        raise ConnectionLost("lost", sent=True)

    for broker in cluster:
        for call in CALLS:
            broker.host.calls.serve(call.service, handler_of(call.request, lose))
    lost = f"it is unknown whether {ORDERS} stored the records: lost"
    for calling, doubt in (
        (gateway.mark(ORDERS, ENDED, timeout_ms=500), lost),
        (
            gateway.delete_before(ORDERS, Offset(5), timeout_ms=500),
            f"it is unknown whether the records of {ORDERS} below 5 are deleted; retry: {lost}",
        ),
        (
            gateway.set_archived(ORDERS, Archived(5), timeout_ms=500),
            f"it is unknown whether {ORDERS} is archived up to 5; retry: {lost}",
        ),
    ):
        asked.clear()
        with pytest.raises(CommitUnknown) as unknown:
            await calling
        assert str(unknown.value) == doubt
        assert len(asked) > 3
    with pytest.raises(NoLeader):  # it changes nothing
        await gateway.offset_at(ORDERS, Start.LATEST)


@pytest.mark.parametrize("position", [Offset(5), Start.EARLIEST, Start.LATEST, AtTime(9), LastRecords(3)])
def test_positions_travel(position: Offset | Start | AtTime | LastRecords) -> None:
    asked = rpc.OffsetAt((ORDERS, GroupId(1)), position)
    assert decode_body(encode_body(asked), rpc.OffsetAt) == asked
