"""Nothing stale deletes replicas or topics, and a name that is used again is another topic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from partitions.hosting.directories import folder_name
from partitions.metadata.commands import DeleteTopic, DrainBroker, ReplicasChanged
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.planner import NewTopic
from partitions.metadata.requests import (
    SERVICE,
    Answer,
    Question,
    Request,
    decode_answer,
    decode_question,
    encode_question,
)
from partitions.metadata.service import Controller
from partitions.routing import rpc
from partitions.values import QUORUM
from raftlog.core.membership import Membership
from raftlog.errors import (
    CommitUnknown,
    Conflict,
    ConnectionLost,
    InvalidRequest,
    RaftlogError,
    TopicNotFound,
)
from raftlog.node.rpc import Calls, decode_body, encode_body
from raftlog.types import METADATA_GROUP, GroupId, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.moving import create, info, move, nodes, produce, values
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.virtual_time import eventually


async def asks(
    asker: ControlledBroker, asked: ControlledBroker, what: str, *, version: int = 0, group: int = 0
) -> bool:
    """Yes or no."""
    partition = info(asked)
    place = (ORDERS, GroupId(partition.group_id + group))
    kind = rpc.MayDelete if what == rpc.MAY_DELETE else rpc.Prepared
    head = encode_body(kind(place, partition.version + version))
    answer, _ = await asker.host.calls.call(asked.node_id, what, head, timeout_ms=3000)
    if what == rpc.MAY_DELETE:
        return decode_body(answer, rpc.DeleteAnswer).is_permitted
    return decode_body(answer, rpc.PreparedAnswer).is_open


@asynccontextmanager
async def leader_and_stranger() -> AsyncIterator[
    tuple[ControlledCluster, ControlledBroker, ControlledBroker]
]:
    """Of four brokers three hold a partition: its leader, and the fourth. Nothing moves."""
    async with ControlledCluster(brokers=4) as cluster:
        _, outside = await create(cluster)
        await produce(cluster, b"a")
        for broker in cluster.brokers.values():
            await broker.reassigner.stop()
        yield cluster, await cluster.leader(), cluster.brokers[outside]


async def may_go(
    stranger: ControlledBroker, led: ControlledBroker, *, version: int = 0, group: int = 0
) -> bool:
    return await asks(stranger, led, rpc.MAY_DELETE, version=version, group=group)


# requirement: F2
async def test_a_stranger_may_go_and_not_by_metadata_that_the_leader_has_not_seen() -> None:
    async with leader_and_stranger() as (_, led, stranger):
        assert await may_go(stranger, led)
        assert not await may_go(stranger, led, version=1000)
        with pytest.raises(RaftlogError):
            await may_go(stranger, led, group=1)


async def test_a_learner_may_not_go_whatever_the_metadata_says() -> None:
    async with leader_and_stranger() as (_, led, stranger):
        group = led.manager.replicas["orders", 0].group
        await group.change_membership(Membership(group.membership.voters, frozenset({stranger.node_id})))
        assert not await may_go(stranger, led)


async def test_who_is_wanted_may_not_go_although_its_group_does_not_know_it() -> None:
    async with leader_and_stranger() as (_, led, stranger):
        await led.admin.change_replicas(MoveReplicas("orders", 0, add=stranger.node_id), 5000)
        assert not await may_go(stranger, led)


async def test_nobody_goes_by_a_membership_that_is_not_committed() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        group = led.manager.replicas["orders", 0].group
        voters = group.membership.voters
        learning = Membership(voters, frozenset({stranger.node_id}))
        await group.change_membership(learning)
        for broker in cluster.brokers.values():
            broker.disk.clear()
        leaving = asyncio.ensure_future(group.change_membership(Membership(voters)))
        await eventually(lambda: group.membership == Membership(voters))
        assert not await may_go(stranger, led)
        for broker in cluster.brokers.values():
            broker.disk.set()
        await leaving
        assert await may_go(stranger, led)


async def test_a_leader_that_hears_no_majority_lets_nobody_go() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        for other in set(cluster.nodes) - {led.node_id, stranger.node_id}:
            cluster.network.cut_both(led.node_id, other)
        with pytest.raises(RaftlogError):
            await may_go(stranger, led)


async def is_prepared(
    led: ControlledBroker, asked: ControlledBroker, *, version: int = 0, group: int = 0
) -> bool:
    return await asks(led, asked, rpc.PREPARED, version=version, group=group)


# requirement: F2
async def test_a_broker_is_prepared_with_the_very_replica_by_metadata_as_new() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        topic = await led.admin.change_replicas(MoveReplicas("orders", 0, add=stranger.node_id), 5000)
        await cluster.settled(topic.version)
        assert await is_prepared(led, stranger)
        assert not await is_prepared(led, stranger, version=1000)
        assert not await is_prepared(led, stranger, group=1)
        stranger.manager.replicas["orders", 0].group.stop(OSError(5, "on purpose"))
        assert not await is_prepared(led, stranger)


async def test_a_broker_whose_replica_leaves_is_not_prepared() -> None:
    """The metadata wants it no more, and its group names it still, so it is open."""
    async with leader_and_stranger() as (cluster, led, _):
        partition = info(led)
        leaving = next(node for node in partition.replicas if node != led.node_id)
        rest = tuple(node for node in partition.replicas if node != leaving)
        topic_id = led.controller.image.topics["orders"].topic_id
        report = ReplicasChanged(
            "orders", topic_id, 0, partition.group_id, rest, 1000, target_version=partition.version
        )
        await led.controller.change_replicas(report, 5000)
        await cluster.settled(led.controller.image.version)
        assert ("orders", 0) in cluster.brokers[leaving].manager.replicas
        assert not await is_prepared(led, cluster.brokers[leaving])


# requirement: M3
async def test_a_broker_says_that_it_has_no_replica_only_by_confirmed_metadata() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        held = info(led).group_id
        await eventually(lambda: _answers(stranger, held))
        assert stranger.manager.directory_of(held) is None
        nodes = [*cluster.brokers]
        for node in nodes:
            await cluster.stop(node)
        alone = await cluster.start(nodes[0])
        with pytest.raises(InvalidRequest, match="does not know yet"):
            alone.manager.directory_of(GroupId(held + 1))
        for node in nodes[1:]:
            await cluster.start(node)
        await eventually(lambda: _answers(alone, GroupId(held + 1)))
        assert alone.manager.directory_of(GroupId(held + 1)) is None


def _answers(broker: ControlledBroker, group: GroupId) -> bool:
    with contextlib.suppress(InvalidRequest):
        broker.manager.directory_of(group)
        return True
    return False


CREATION = NewTopic("orders", "5" * 32, 1, 3, {})


async def controller_and_another(cluster: ControlledCluster) -> tuple[ControlledBroker, ControlledBroker]:
    """The broker of the active controller, and a broker that forwards to it."""
    controller = await cluster.controller_broker()
    return controller, next(broker for broker in cluster.brokers.values() if broker is not controller)


async def ask(cluster: ControlledCluster, request: Request) -> Answer:
    """One message to the active controller, as another broker sends it."""
    controller = await cluster.controller_broker()
    sender = next(broker for broker in cluster.brokers.values() if broker is not controller)
    head = encode_question(Question(5000, request))
    answer, _ = await sender.host.calls.call(controller.node_id, SERVICE, head, timeout_ms=5000)
    return decode_answer(answer)


async def made(cluster: ControlledCluster, request: NewTopic = CREATION) -> TopicInfo:
    answer = await ask(cluster, request)
    assert answer.topic is not None
    await cluster.settled(answer.version)
    return answer.topic


async def delete(broker: ControlledBroker) -> int:
    return await broker.controller.delete_topic("orders", expected_version=None, timeout_ms=5000)


# requirement: T1
@in_virtual_time_with(ControlledCluster)
async def test_a_repeated_creation_restores_no_deleted_topic(cluster: ControlledCluster) -> None:
    first = await made(cluster)
    assert await made(cluster) == first
    await delete(cluster.any)
    with pytest.raises(Conflict, match="has been deleted since"):
        await ask(cluster, CREATION)
    second = await made(cluster, NewTopic("orders", "6" * 32, 1, 3, {}))
    assert second.topic_id != first.topic_id
    assert {p.group_id for p in second.partitions}.isdisjoint(p.group_id for p in first.partitions)


# requirement: T1, T5
async def test_a_broker_that_missed_a_deletion_serves_nothing_of_it_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the creation was repeated so late that nobody remembers it."""
    monkeypatch.setattr("partitions.metadata.machine.DELETED_REMEMBERED", 1)
    async with ControlledCluster(str(tmp_path)) as cluster:
        first = await made(cluster)
        led = await cluster.leader()
        await led.gateway.append(ORDERS, batch_of(b"old"), acks=QUORUM, timeout_ms=5000)
        away = next(
            broker
            for broker in cluster.brokers.values()
            if broker is not led and not broker.host.groups[METADATA_GROUP].is_leader
        )
        cluster.network.isolate(away.node_id)
        await delete(led)
        await ask(cluster, NewTopic("other", "6" * 32, 1, 1, {}))
        await ask(cluster, DeleteTopic("other"))
        second = (await ask(cluster, CREATION)).topic
        assert second is not None
        cluster.network.heal_all()
        await cluster.settled(second.version)
        assert second.topic_id != first.topic_id
        await led.gateway.append(ORDERS, batch_of(b"new"), acks=QUORUM, timeout_ms=5000)
        replica = away.manager.replicas["orders", 0]
        assert replica.group.group_id == second.partitions[0].group_id
        await eventually(lambda: replica.group.commit_index >= 0)
        assert replica.group.log.first_index == 0
        assert await values(away) == [b"new"]
        assert not (tmp_path / f"broker-{away.node_id}" / folder_name(first)).exists()
        assert replica.group.log.last_index == led.manager.replicas["orders", 0].group.log.last_index


# requirement: T1
async def test_a_replica_of_a_newer_topic_of_the_name_does_not_stay_when_it_is_placed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that starts sees old metadata first, and then metadata that is newer than its files."""
    known = dict[NodeId, MetadataImage]()
    newest = Controller.image
    monkeypatch.setattr(
        Controller, "image", property(lambda it: known.get(it._host.node_id) or newest.__get__(it))
    )
    async with ControlledCluster(str(tmp_path), brokers=4) as cluster:
        first = (await create(cluster))[0]
        old = cluster.any.controller.image
        await delete(cluster.any)
        second = await cluster.create("orders")
        away = next(node for node in second.partitions[0].replicas if node in first)
        folder = Path(cluster.directory_of(away)) / folder_name(second) / "Partition-0"
        assert folder.exists()
        await cluster.stop(away)
        await move(cluster, *sorted(set(cluster.nodes) - {away}))
        known[away] = old
        again = await cluster.start(away)
        await eventually(lambda: ("orders", 0) in again.manager.failures)
        known.clear()
        await cluster.create("other")
        await eventually(lambda: not folder.exists())


@in_virtual_time_with(ControlledCluster)
async def test_late_requests_change_no_later_topic_of_the_name(cluster: ControlledCluster) -> None:
    first = await made(cluster)
    await delete(cluster.any)
    second = await made(cluster, NewTopic("orders", "6" * 32, 1, 3, {}))
    for late in (
        DeleteTopic("orders", None, first.topic_id),
        MoveReplicas("orders", 0, nodes(1), topic_id=first.topic_id),
    ):
        with pytest.raises(TopicNotFound):
            await ask(cluster, late)
    assert cluster.any.controller.image.topics["orders"] == second


@in_virtual_time_with(ControlledCluster)
async def test_a_refusal_after_an_attempt_in_doubt_is_in_doubt_as_well(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, asked = await controller_and_another(cluster)
    attempts: list[str] = []

    async def call(peer: NodeId, service: str, head: bytes, *payload: object, timeout_ms: int) -> object:
        answer = await Calls.call(asked.host.calls, peer, service, head, *payload, timeout_ms=timeout_ms)
        attempts.append(service)
        await delete(controller)
        raise ConnectionLost(f"the answer to {answer} is lost", sent=True)

    monkeypatch.setattr(asked.host.calls, "call", call)
    with pytest.raises(CommitUnknown, match=r"this request created .* which has been deleted since"):
        await asked.controller.create_topic(
            "orders", partitions=1, replication_factor=3, config={}, timeout_ms=5000
        )
    assert attempts == [SERVICE]
    assert "orders" not in controller.controller.image.topics


@in_virtual_time_with(ControlledCluster)
async def test_a_deletion_that_is_on_its_way_while_the_name_changes_hands_deletes_nothing(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, asked = await controller_and_another(cluster)
    await made(cluster)

    async def call(peer: NodeId, service: str, head: bytes, *payload: object, timeout_ms: int) -> object:
        if isinstance(decode_question(head).request, DeleteTopic):
            await delete(controller)
            await controller.controller.create_topic(
                "orders", partitions=1, replication_factor=3, config={}, timeout_ms=5000
            )
        return await Calls.call(asked.host.calls, peer, service, head, *payload, timeout_ms=timeout_ms)

    monkeypatch.setattr(asked.host.calls, "call", call)
    with pytest.raises(TopicNotFound):
        await delete(asked)
    assert "orders" in controller.controller.image.topics


@in_virtual_time_with(ControlledCluster)
async def test_a_change_whose_answer_is_lost_is_carried_out_once(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, asked = await controller_and_another(cluster)
    await made(cluster)

    async def call(peer: NodeId, service: str, head: bytes, *payload: object, timeout_ms: int) -> object:
        answer = await Calls.call(asked.host.calls, peer, service, head, *payload, timeout_ms=timeout_ms)
        if isinstance(decode_question(head).request, MoveReplicas):
            raise ConnectionLost(f"the answer {answer} is lost", sent=True)
        return answer

    monkeypatch.setattr(asked.host.calls, "call", call)
    with pytest.raises(CommitUnknown, match="the metadata has changed since"):
        await asked.admin.change_replicas(MoveReplicas("orders", 0, remove=NodeId(1)), 1000)
    image = await asked.controller.current_image(1000)
    assert image.topics["orders"].partitions[0].target_replicas == (2, 3)


# requirement: ST5
@in_virtual_time_with(ControlledCluster)
async def test_a_repetition_does_not_undo_what_somebody_has_changed_since(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, asked = await controller_and_another(cluster)
    drain, use_again = DrainBroker(NodeId(3)), DrainBroker(NodeId(3), draining=False)

    async def call(peer: NodeId, service: str, head: bytes, *payload: object, timeout_ms: int) -> object:
        answer = await Calls.call(asked.host.calls, peer, service, head, *payload, timeout_ms=timeout_ms)
        if decode_question(head).request == drain:
            await controller.controller.change_broker(use_again, 1000)
            raise ConnectionLost(f"the answer {answer} is lost", sent=True)
        return answer

    monkeypatch.setattr(asked.host.calls, "call", call)
    with pytest.raises(CommitUnknown, match="the metadata has changed since"):
        await asked.controller.change_broker(drain, 1000)
    assert not (await asked.controller.current_image(1000)).brokers[NodeId(3)].draining


@in_virtual_time_with(ControlledCluster)
async def test_a_change_that_is_replicated_too_late_is_in_doubt(cluster: ControlledCluster) -> None:
    controller = await cluster.controller_broker()
    await made(cluster)
    for broker in cluster.brokers.values():
        broker.disk.clear()
    with pytest.raises(CommitUnknown):
        await controller.controller.alter_config(
            "orders", {"retention.ms": 5}, expected_version=None, timeout_ms=300
        )
    for broker in cluster.brokers.values():
        broker.disk.set()
    changed = controller.controller
    await eventually(lambda: changed.image.topics["orders"].config == {"retention.ms": 5})
