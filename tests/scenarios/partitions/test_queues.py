"""Queues over three brokers: leases when the coordinator fails over, and when no disk has room."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from groups.queue_requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import RaftlogError
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually

LEASE_MS = 10_000
TIMEOUT_MS = 5_000


async def received(broker: ControlledBroker, lease: bytes, count: int = 1) -> list[tuple[int, int]]:
    """Offsets and deliveries of the jobs that a worker gets through a broker."""
    topic = broker.controller.image.topics["orders"]
    ask = Receive(
        group="crew",
        topic="orders",
        topic_id=topic.topic_id,
        lease=lease,
        count_max=count,
        lease_ms=LEASE_MS,
        deliveries_max=5,
    )
    reply = await broker.groups.service.ask(ask, timeout_ms=TIMEOUT_MS, creates=True)
    assert isinstance(reply, Received)
    return [(job.offset, job.deliveries) for job in reply.jobs]


async def lost(broker: ControlledBroker, how: str, lease: bytes, *offsets: int) -> tuple[int, ...]:
    """What a worker says, and the places of the jobs that it has no more."""
    tokens = tuple(Token(0, offset, lease) for offset in offsets)
    ask = Settle(group="crew", topic="orders", tokens=tokens, how=how)  # type: ignore[arg-type]
    reply = await broker.groups.service.ask(ask, timeout_ms=TIMEOUT_MS)
    assert isinstance(reply, Settled)
    return reply.lost


def coordinates(broker: ControlledBroker) -> bool:
    """Whether it leads the group's partition of ``__offsets``."""
    found = broker.groups.coordinators.get(0)
    return found is not None and found.is_coordinating


async def fill(cluster: PartitionCluster, count: int) -> None:
    """Records of ``orders``, one batch."""
    await (await cluster.leader()).append(batch_of(*(b"%d" % number for number in range(count))))


# requirement: A7
@in_virtual_time_with(PartitionCluster)
async def test_leases_survive_the_fail_over_of_the_coordinator(cluster: PartitionCluster) -> None:
    await fill(cluster, 4)
    first, second, third = b"worker-1", b"worker-2", b"worker-3"
    assert await received(cluster.any, first, 2) == [(0, 1), (1, 1)]
    assert await received(cluster.any, second) == [(2, 1)]
    loop = asyncio.get_running_loop()
    leased_s = loop.time()
    old = next(filter(coordinates, cluster))
    cluster.network.isolate(old.node_id)
    others = [broker for broker in cluster if broker is not old]
    await eventually(lambda: any(map(coordinates, others)))
    new = next(filter(coordinates, others))
    assert await lost(new, "ack", first, 0) == ()
    assert await received(new, third, 5) == [(3, 1)]  # 1 and 2 are leased as before
    assert await lost(new, "ack", third, 3) == ()
    assert loop.time() - leased_s < LEASE_MS / 1_000
    cluster.network.heal_all()
    await asyncio.sleep(max(0.0, leased_s + LEASE_MS / 1_000 - 0.5 - loop.time()))
    assert await received(new, b"worker-4", 5) == []
    await asyncio.sleep(1.0)
    assert await received(new, b"worker-5", 5) == [(1, 2), (2, 2)]
    assert await lost(new, "ack", second, 2) == (0,)  # another worker has it
    assert await lost(new, "ack", b"worker-5", 1, 2) == ()
    assert await lost(old, "ack", first, 0) == ()  # repeated, through the broker that was cut off
    await asyncio.sleep(2 * LEASE_MS / 1_000)
    assert await received(new, b"worker-6", 5) == []


# requirement: A7
@in_virtual_time_with(PartitionCluster)
async def test_without_room_on_any_disk_nothing_is_leased_or_lost(cluster: PartitionCluster) -> None:
    await fill(cluster, 3)
    assert await received(cluster.any, b"worker-1", 2) == [(0, 1), (1, 1)]
    for broker in cluster:
        broker.has_room = False
    for ask in (
        partial(received, cluster.any, b"worker-2"),
        partial(lost, cluster.any, "ack", b"worker-1", 0),
        partial(lost, cluster.any, "dead", b"worker-1", 1),
    ):
        with pytest.raises(RaftlogError) as refusal:
            await ask()
        assert refusal.value.retryable or not refusal.value.is_definite
    for broker in cluster:
        broker.has_room = True
    await asyncio.sleep(1.0)
    assert await lost(cluster.any, "ack", b"worker-1", 0, 1) == ()
    assert await received(cluster.any, b"worker-3", 5) == [(2, 1)]  # the refused receive has got nothing
