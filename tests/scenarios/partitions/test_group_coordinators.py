"""Coordinators of groups and queues in a cluster: their brokers, and what a successor knows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import pytest

from broker.settings import Groups
from groups.records import TOPIC
from groups.requests import (
    Beat,
    Commit,
    Done,
    GroupView,
    Heartbeat,
    Join,
    Joined,
    OffsetCommit,
    ReadGroup,
    Request,
    Sync,
    Synced,
)
from queues.requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import MemberNotFound, Overloaded
from raftlog.node.rpc_classes import CALLS_MAX, CallClass
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster, PartitionCluster
from tests.helpers.orders import batch_of
from tests.helpers.simulated_brokers import Place
from tests.helpers.virtual_time import eventually

TIMEOUT_MS: Final = 20_000
SESSION_MS: Final = 2_000
PARTITIONS: Final = 8  # of the topic with the groups
# The partition of each group: murmur2 of its name without the sign, modulo 8. Other clients may take these.
VECTORS: Final = {"billing": 1, "shipping": 1, "e": 2, "mail": 3, "größe": 4, "audit-2": 7}
Expected = TypeVar("Expected")


class ManyOffsets(ControlledBroker):
    """A broker of a cluster in which several brokers coordinate groups."""

    group_settings = Groups(partitions=PARTITIONS)


class GroupCluster(ControlledCluster):
    """Four brokers, of which three hold each partition of the groups, and the topic ``orders``."""

    def __init__(self) -> None:
        super().__init__(None, 4)

    def new(self, place: Place) -> ControlledBroker:
        return ManyOffsets(place, self.directory_of(place.node_id), None)

    async def ready(self) -> None:
        await super().ready()
        self.topic = await self.create("orders", 4)
        await self.any.groups.service.ready(timeout_ms=TIMEOUT_MS)
        await self.settled(self.any.controller.image.version)

    def coordinators_of(self, group: str) -> list[NodeId]:
        """Brokers that coordinate a group which has been used."""
        return [
            broker.node_id
            for broker in self
            for coordinator in broker.groups.coordinators.values()
            if coordinator.coordinated is not None and group in coordinator.coordinated.groups
        ]


class UnusedGroups(GroupCluster):
    """A cluster that has had no group yet, so that it has no topic of groups."""

    async def ready(self) -> None:
        await self.registered()


@dataclass
class Member:
    """A member of a group, which speaks to one broker."""

    broker: ControlledBroker
    name: str
    group: str = "billing"
    generation: int = -1

    async def ask(self, request: Request, kind: type[Expected]) -> Expected:
        """Any request, by any broker."""
        reply = await self.broker.groups.service.ask(request, timeout_ms=TIMEOUT_MS, creates=True)
        assert isinstance(reply, kind), reply
        return reply

    async def join(self) -> Joined:
        """Join, or join again."""
        request = Join(
            group=self.group,
            member_id=self.name,
            topics=("orders",),
            session_timeout_ms=SESSION_MS,
            generation=self.generation,
        )
        joined = await self.ask(request, Joined)
        self.generation = joined.generation
        return joined

    async def sync(self) -> Synced:
        """Have the coordinator make the plan, or wait for it."""
        asked = Sync(group=self.group, member_id=self.name, generation=self.generation, is_auto=True)
        return await self.ask(asked, Synced)

    async def beat(self) -> bool:
        """Whether the member has to join again."""
        asked = Heartbeat(group=self.group, member_id=self.name, generation=self.generation)
        return (await self.ask(asked, Beat)).must_rejoin

    async def commit(self, topic_id: str, partition: int, offset: int) -> None:
        """Commit the next offset to read."""
        offsets = (OffsetCommit(topic="orders", topic_id=topic_id, partition=partition, offset=offset),)
        asked = Commit(group=self.group, member_id=self.name, generation=self.generation, offsets=offsets)
        await self.ask(asked, Done)

    async def view(self) -> GroupView:
        """The group as its coordinator knows it."""
        return await self.ask(ReadGroup(group=self.group), GroupView)


async def two_members(cluster: GroupCluster) -> tuple[Member, Member]:
    """Members of one group at two brokers, which have their partitions."""
    first, second = Member(cluster.brokers[NodeId(1)], "a"), Member(cluster.brokers[NodeId(2)], "b")
    await first.join()
    await first.sync()
    joining = asyncio.create_task(second.join())
    while not await first.beat():
        await asyncio.sleep(0.1)
    await first.join()
    await joining
    await asyncio.gather(first.sync(), second.sync())
    return first, second


# requirement: G6
@in_virtual_time_with(GroupCluster)
async def test_the_hash_of_its_name_chooses_the_coordinator_of_a_group(cluster: GroupCluster) -> None:
    found: dict[str, NodeId] = {}
    for group, partition in VECTORS.items():
        generations = set()
        for broker in cluster:  # a member may ask any broker
            member = Member(broker, "a", group)
            generations.add((await member.join()).generation)
            await member.sync()
            assert not await member.beat()
        assert generations == {1}, "two brokers have the group"
        (found[group],) = cluster.coordinators_of(group)
        for broker in cluster:
            assert broker.groups.service.coordinator_of(group) == (partition, found[group])
        assert cluster.brokers[found[group]].manager.replicas[TOPIC, partition].group.is_leader
    assert found["billing"] == found["shipping"]
    assert len({*found.values()}) > 1, "the controller alone coordinates no groups"


# requirement: G6
@in_virtual_time_with(UnusedGroups)
async def test_every_broker_names_the_coordinator_of_a_group_before_the_first_group(
    cluster: UnusedGroups,
) -> None:
    asked = (broker.groups.service.coordinator("mail", timeout_ms=TIMEOUT_MS) for broker in cluster)
    found = {*await asyncio.gather(*asked)}
    await cluster.create("orders", 4)
    await Member(cluster.any, "a", "mail").join()
    assert found == {(VECTORS["mail"], *cluster.coordinators_of("mail"))}


# requirement: C4
@pytest.mark.parametrize("kind", [Heartbeat, Receive])
@in_virtual_time_with(GroupCluster)
async def test_requests_that_wait_keep_nobody_from_those_that_are_answered_at_once(
    cluster: GroupCluster, monkeypatch: pytest.MonkeyPatch, kind: type[Request]
) -> None:
    bound = 20
    for full in (CallClass.GROUPS, CallClass.GROUP_WAIT):
        monkeypatch.setitem(CALLS_MAX, full, bound)
    member = Member(cluster.any, "a")
    await member.join()
    await member.sync()
    beat = Heartbeat(group="billing", member_id="a", generation=1, wait_ms=1_000)
    leases = (b"%d" % number for number in itertools.count())
    receives = (job_request(cluster.any, lease, group="shipping", wait_ms=1_000) for lease in leases)
    waits: Iterator[Request] = itertools.repeat(beat) if kind is Heartbeat else receives
    (coordinator,) = cluster.coordinators_of("billing")  # and of the queue
    served = cluster.brokers[coordinator].host.calls._served
    busy, other, _ = (broker for broker in cluster if broker.node_id != coordinator)
    parked = [asyncio.create_task(Member(busy, "a").ask(next(waits), object)) for _ in range(bound)]
    await eventually(lambda: served[CallClass.GROUPS] + served[CallClass.GROUP_WAIT] == bound)
    for broker in (busy, other):  # the bound of the one that asks, and that of the coordinator
        asking = Member(broker, "a", generation=1)
        await asking.commit(cluster.topic.topic_id, 0, 1)
        assert not await asking.beat()
        with pytest.raises(Overloaded) as refused:
            await asking.ask(next(waits), object)
        assert refused.value.details["retry_after_ms"] == 1_000
    await asyncio.gather(*parked)
    await Member(busy, "a").ask(next(waits), object)


# requirement: G7
@in_virtual_time_with(GroupCluster)
async def test_the_coordinator_keeps_members_and_offsets_by_heartbeats(cluster: GroupCluster) -> None:
    first, second = await two_members(cluster)
    view = await Member(cluster.brokers[NodeId(3)], "").view()
    assert (view.state, set(view.group.members)) == ("stable", {"a", "b"})
    for each in (first, second):
        partition = view.group.members[each.name].assignment["orders"][0]
        await each.commit(cluster.topic.topic_id, partition, 10 + partition)
    view = await Member(cluster.brokers[NodeId(4)], "").view()
    assert [(topic, number, each.offset) for topic, number, each in view.offsets] == [
        ("orders", 0, 10),
        ("orders", 2, 12),
    ]
    for _ in range(5):  # the second member is silent for longer than its session
        must_rejoin = await first.beat()
        await asyncio.sleep(SESSION_MS / 4_000)
    assert must_rejoin
    await first.join()
    with pytest.raises(MemberNotFound):
        await second.beat()
    assert (await first.sync()).assignment == {"orders": (0, 1, 2, 3)}
    assert set((await first.view()).group.members) == {"a"}


# requirement: ST1
@in_virtual_time_with(GroupCluster)
async def test_the_next_coordinator_knows_assignments_and_offsets(cluster: GroupCluster) -> None:
    first, second = await two_members(cluster)
    owned = {each.name: (await each.sync()).assignment["orders"] for each in (first, second)}
    assert sorted(owned["a"] + owned["b"]) == [0, 1, 2, 3]
    for each in (first, second):
        for partition in owned[each.name]:
            await each.commit(cluster.topic.topic_id, partition, 100 + partition)
    before = await first.view()
    (old,) = cluster.coordinators_of("billing")
    await cluster.stop(old)
    asking = Member(cluster.any, "a", generation=first.generation)
    after = await asking.view()
    (new,) = cluster.coordinators_of("billing")
    assert new != old
    assert {name: member.assignment["orders"] for name, member in after.group.members.items()} == owned
    assert [(number, each.offset) for _, number, each in after.offsets] == [
        (number, 100 + number) for number in range(4)
    ]
    assert (after.group, after.offsets) == (before.group, before.offsets)
    assert not await asking.beat(), "the members go on in their generation"


LEASE_MS = 10_000
QUEUE_TIMEOUT_MS = 5_000


def job_request(
    broker: ControlledBroker, lease: bytes, count: int = 1, *, group: str = "crew", wait_ms: int = 0
) -> Receive:
    """Make the request of a worker for jobs."""
    return Receive(
        group=group,
        topic="orders",
        topic_id=broker.controller.image.topics["orders"].topic_id,
        lease=lease,
        count_max=count,
        lease_ms=LEASE_MS,
        deliveries_max=5,
        wait_ms=wait_ms,
    )


async def received(broker: ControlledBroker, lease: bytes, count: int = 1) -> list[tuple[int, int]]:
    """Offsets and deliveries of the jobs that a worker gets through a broker."""
    ask = job_request(broker, lease, count)
    reply = await broker.groups.service.ask(ask, timeout_ms=QUEUE_TIMEOUT_MS, creates=True)
    assert isinstance(reply, Received)
    return [(job.offset, job.deliveries) for job in reply.jobs]


async def lost(broker: ControlledBroker, how: str, lease: bytes, *offsets: int) -> tuple[int, ...]:
    """Settle the jobs of a worker; the places of the jobs whose lease it has lost."""
    tokens = tuple(Token(0, offset, lease) for offset in offsets)
    ask = Settle(group="crew", topic="orders", tokens=tokens, how=how)  # type: ignore[arg-type]
    reply = await broker.groups.service.ask(ask, timeout_ms=QUEUE_TIMEOUT_MS)
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


# requirement: A7, A11
@in_virtual_time_with(PartitionCluster)
async def test_without_room_on_any_disk_a_queue_goes_on(cluster: PartitionCluster) -> None:
    await fill(cluster, 3)
    assert await received(cluster.any, b"worker-1", 2) == [(0, 1), (1, 1)]
    for broker in cluster:
        broker.has_room = False
    assert await received(cluster.any, b"worker-2") == [(2, 1)]
    assert await lost(cluster.any, "nack", b"worker-1", 0) == ()
    assert await lost(cluster.any, "ack", b"worker-1", 1) == ()
    for broker in cluster:
        broker.has_room = True
    await asyncio.sleep(1.0)
    assert await lost(cluster.any, "ack", b"worker-2", 2) == ()
    assert await received(cluster.any, b"worker-3", 5) == [(0, 2)]
