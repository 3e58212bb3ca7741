"""Reading at the leader: what is seen, how long it is waited for, where the log ends, who is refused."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from partitions.values import QUORUM, Acks, AtTime, FetchRequest, LastRecords, Start
from raftlog.errors import NoLeader, NotLeader, OffsetOutOfRange, Overloaded, TopicNotFound
from raftlog.node.rpc_classes import CALLS_MAX, CallClass
from raftlog.types import GroupId, NodeId, Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of
from tests.helpers.tagged import tagged, tagged_batch
from tests.helpers.virtual_time import eventually

SECOND_MS = 1_000


@in_virtual_time_with(PartitionCluster)
async def test_a_fetch_gives_whole_batches_from_the_one_with_the_offset(cluster: PartitionCluster) -> None:
    # requirement: C1, C2
    leader = await cluster.leader()
    replica = leader.orders
    for body in (batch_of(b"a", b"b", b"c"), batch_of(b"d"), batch_of(b"e")):
        await leader.append(body)
    result = await replica.fetch(fetch_from(1))
    assert values_of(result.data) == [b"a", b"b", b"c", b"d", b"e"]
    assert (result.offset, result.next_offset, result.high_watermark) == (1, 5, 5)
    small = await replica.fetch(fetch_from(0, bytes_max=1))
    assert values_of(small.data) == [b"a", b"b", b"c"]
    assert small.next_offset == 3
    end = await replica.fetch(fetch_from(5))
    assert (end.data, end.next_offset) == (b"", 5)


@in_virtual_time_with(PartitionCluster)
async def test_what_is_not_committed_is_not_seen(cluster: PartitionCluster) -> None:
    # requirement: RP4, RP6, P5
    leader = await cluster.leader()
    replica = leader.orders
    for follower in cluster.followers(leader):
        follower.disk.clear()
    receipt = await leader.append(batch_of(b"a"), acks=Acks.parse("1"))
    assert (receipt.base_offset, receipt.durability.committed) == (0, False)
    result = await replica.fetch(fetch_from(0))
    assert (result.data, result.high_watermark, replica.group.last_index) == (b"", 0, 0)
    with pytest.raises(NoLeader):  # the offset exists: never "out of range"
        await replica.fetch(fetch_from(1, wait_ms=10))
    own_write = replace(fetch_from(0, wait_ms=30 * SECOND_MS), min_offset=Offset(1))
    parked = asyncio.create_task(replica.fetch(own_write))
    await eventually(lambda: replica.parked == 1)
    for follower in cluster.followers(leader):
        follower.disk.set()
    async with asyncio.timeout(1):
        for result in (await parked, await replica.fetch(fetch_from(0, wait_ms=5 * SECOND_MS))):
            assert values_of(result.data) == [b"a"]


@in_virtual_time_with(PartitionCluster)
async def test_a_long_poll_of_any_kind_returns_as_soon_as_data_is_there(cluster: PartitionCluster) -> None:
    # requirement: C3
    leader = await cluster.leader()
    size = len(batch := tagged_batch(tagged(b"a", "paid")))
    await leader.append(batch)
    plain = fetch_from(1, wait_ms=30 * SECOND_MS)
    polls = [
        plain,
        replace(plain, committed_only=True),
        replace(plain, tags=("paid",)),
        replace(plain, position=Offset(0), bytes_min=2 * size),
        replace(plain, tags=("paid",), position=Offset(0), bytes_min=2 * size),
        replace(plain, position=Start.LATEST),
        replace(plain, max_staleness_ms=SECOND_MS, is_local=True),
    ]
    brokers = [(leader, poll) for poll in polls] + [(cluster.followers(leader)[0], polls[-1])]
    parked = [asyncio.create_task(broker.gateway.fetch(ORDERS, poll)) for broker, poll in brokers]
    await asyncio.sleep(2)
    assert not any(poll.done() for poll in parked)
    await leader.append(tagged_batch(tagged(b"b", "paid")))
    async with asyncio.timeout(1):
        results = [await poll for poll in parked]
        results += [await leader.gateway.fetch(ORDERS, replace(poll, position=Offset(0))) for poll in polls]
    assert [values_of(result.data)[-1:] for result in results] == [[b"b"]] * len(results)
    assert [broker.orders.parked for broker in cluster] == [0, 0, 0]


@in_virtual_time_with(PartitionCluster)
async def test_a_long_poll_gathers_the_bytes_it_asked_for(cluster: PartitionCluster) -> None:
    # requirement: B4, C3
    leader = await cluster.leader()
    replica = leader.orders
    size = len(batch_of(b"a"))
    wanted = fetch_from(0, bytes_min=3 * size, wait_ms=30 * SECOND_MS)
    parked = asyncio.create_task(replica.fetch(wanted))
    for value in (b"a", b"b"):
        await leader.append(batch_of(value))
    assert not parked.done()
    await leader.append(batch_of(b"c"))
    assert values_of((await parked).data) == [b"a", b"b", b"c"]
    # At the time-out it takes what there is; and it waits for no more than it may return.
    some = await replica.fetch(fetch_from(1, bytes_min=9 * size, wait_ms=30))
    assert values_of(some.data) == [b"b", b"c"]
    most = await replica.fetch(fetch_from(1, bytes_min=9 * size, bytes_max=size, wait_ms=60_000))
    assert values_of(most.data) == [b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_a_client_that_hangs_up_leaves_no_waiter(cluster: PartitionCluster) -> None:
    replica = (await cluster.leader()).orders
    tasks = [asyncio.create_task(replica.fetch(fetch_from(0, wait_ms=60_000))) for _ in range(1_000)]
    await eventually(lambda: replica.parked == 1_000)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert replica.parked == 0


@in_virtual_time_with(PartitionCluster)
async def test_a_deleted_topic_ends_a_long_poll_at_once(cluster: PartitionCluster) -> None:
    replica = (await cluster.leader()).orders
    parked = asyncio.create_task(replica.fetch(fetch_from(0, wait_ms=60_000)))
    await eventually(lambda: replica.parked == 1)
    replica.topic_deleted()
    with pytest.raises(TopicNotFound):
        await parked


@in_virtual_time_with(PartitionCluster)
async def test_losing_leadership_ends_a_long_poll(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(batch_of(b"a"))
    parked = asyncio.create_task(replica.fetch(FetchRequest(position=Start.LATEST, wait_ms=60_000)))
    await eventually(lambda: replica.parked == 1)
    group_id = replica.group.group_id
    assert [broker for broker in cluster if broker.orders.led(group_id)] == [leader]
    assert not replica.led(GroupId("another"))
    cluster.network.isolate(leader.node_id)
    with pytest.raises(NotLeader):
        await parked
    assert replica.parked == 0
    assert not replica.led(group_id)


@in_virtual_time_with(PartitionCluster)
async def test_outside_of_the_log_the_valid_range_is_told(cluster: PartitionCluster) -> None:
    # requirement: RT4
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(batch_of(b"a", b"b"))
    with pytest.raises(OffsetOutOfRange, match="0 to 2") as above:
        await replica.fetch(fetch_from(3))
    assert above.value.details == {"start": 0, "end": 2}
    async with asyncio.timeout(1):
        with pytest.raises(OffsetOutOfRange):
            await replica.fetch(fetch_from(3, wait_ms=60_000))
    with pytest.raises(OffsetOutOfRange):
        await replica.fetch(fetch_from(-1))


@in_virtual_time_with(PartitionCluster)
async def test_a_deposed_leader_never_says_out_of_range_above_its_end(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    await leader.append(batch_of(b"a"))
    cluster.network.isolate(leader.node_id)
    assert replica.group.is_leader  # it has not noticed yet
    with pytest.raises((NotLeader, NoLeader)):
        await replica.fetch(fetch_from(9))


@in_virtual_time_with(lambda: PartitionCluster(config={"message.timestamp.type": "CreateTime"}))
async def test_positions_are_found_among_committed_records(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    replica = leader.orders
    for number in range(4):
        await leader.append(batch_of(b"a", b"b", timestamp_ms=100 * number))
    assert await replica.offset_at(Start.EARLIEST) == (0, 0)
    assert await replica.offset_at(Start.LATEST) == (8, None)
    assert await replica.offset_at(AtTime(100)) == (2, 100)
    assert await replica.offset_at(AtTime(101)) == (4, 200)
    assert await replica.offset_at(AtTime(301)) == (8, None)
    assert await replica.offset_at(LastRecords(3)) == (5, 200)
    assert await replica.offset_at(LastRecords(99)) == (0, 0)
    result = await replica.fetch(FetchRequest(position=LastRecords(1)))
    assert (result.offset, result.next_offset) == (7, 8)


async def test_parked_long_polls_keep_nobody_from_producing_and_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # requirement: C4
    bound = 20
    for full in (CallClass.FETCH, CallClass.LONG_POLL):
        monkeypatch.setitem(CALLS_MAX, full, bound)
    async with PartitionCluster(4) as cluster:
        leader = await cluster.leader()
        here = cluster.brokers[NodeId(4)].gateway  # it has no replica, and forwards everything
        await here.append(ORDERS, batch_of(b"a"), acks=QUORUM, timeout_ms=5_000)
        polls = [asyncio.create_task(here.fetch(ORDERS, fetch_from(1, wait_ms=60_000))) for _ in range(bound)]
        await eventually(lambda: len(leader.host.calls._running) == bound)
        with pytest.raises(Overloaded) as caught:
            await here.fetch(ORDERS, fetch_from(1, wait_ms=60_000))
        assert caught.value.details["retry_after_ms"] == 1_000
        assert values_of((await here.fetch(ORDERS, fetch_from(0))).data) == [b"a"]
        assert (await here.offset_at(ORDERS, Start.LATEST))[0] == 1
        assert (await here.describe("orders"))[0].leader == leader.node_id
        await here.append(ORDERS, batch_of(b"b"), acks=QUORUM, timeout_ms=5_000)
        assert [values_of((await poll).data) for poll in polls] == [[b"b"]] * bound
