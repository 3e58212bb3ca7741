"""What the brokers say of commits and groups while they do not know. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.requests import Commit, GroupView, OffsetCommit, ReadGroup
from groups.service import GroupService
from raftlog.errors import CommitUnknown, NoLeader
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.instant_groups import InstantLog, NoJobs
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock


class DeposedLog(InstantLog):
    """Its leader is deposed as soon as it has appended; what it has written is committed by the next one."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        super().__init__(coordinator)
        self.coordinator = coordinator

    def propose(self, batches: Sequence[Batch]) -> asyncio.Future[None]:
        """The outcome never comes."""
        super().propose(batches)
        loop = asyncio.get_running_loop()
        loop.call_soon(self.coordinator.leads, None)
        return loop.create_future()


class OnePartition:
    """A topic that this broker leads, or has led; it may not know the topic yet."""

    name = "__offsets"

    def __init__(self, *, is_known: bool = True) -> None:
        self.partition_count = 1 if is_known else None

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """As the active controller knows it."""
        return 1

    async def create(self, timeout_ms: int) -> int:
        """It is there."""
        return 1

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """This broker."""
        return (NodeId(1),)


def a_commit() -> Commit:
    """One of a group without members."""
    return Commit(
        group="billing", offsets=(OffsetCommit(topic="orders", topic_id="0", partition=0, offset=7),)
    )


def service_of(coordinator: GroupCoordinator, topic: OnePartition | None = None) -> GroupService:
    """All groups, as this broker reaches them."""
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    return GroupService(NodeId(1), topic or OnePartition(), {0: coordinator}, calls)


@in_virtual_time
async def test_a_commit_whose_coordinator_is_deposed_after_the_append_is_unknown() -> None:
    # requirement: D2
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), KnownTopics({"orders": 1}), NoJobs(), offsets_retention_ms=1 << 40
    )
    coordinator.leads(DeposedLog(coordinator))
    with pytest.raises(CommitUnknown):
        await service_of(coordinator).ask(a_commit(), timeout_ms=5_000)
    assert coordinator.state.offsets["billing"]  # and it is stored


@in_virtual_time
async def test_a_read_whose_coordinator_is_deposed_is_no_commit_in_doubt() -> None:
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), KnownTopics({"orders": 1}), NoJobs(), offsets_retention_ms=1 << 40
    )
    coordinator.leads(DeposedLog(coordinator))
    coordinator.leads(None)
    with pytest.raises(NoLeader):
        await service_of(coordinator).ask(ReadGroup(group="billing"), timeout_ms=5_000)


@in_virtual_time
async def test_a_broker_that_does_not_know_the_topic_yet_asks_before_it_denies_a_group() -> None:
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), KnownTopics({"orders": 1}), NoJobs(), offsets_retention_ms=1 << 40
    )
    coordinator.leads(InstantLog(coordinator))
    service = service_of(coordinator)
    await service.ask(a_commit(), timeout_ms=5_000)
    service = service_of(coordinator, OnePartition(is_known=False))
    view = await service.ask(ReadGroup(group="billing"), timeout_ms=5_000)
    assert isinstance(view, GroupView)
    assert [committed.offset for _, _, committed in view.offsets] == [7]
    assert [found.group for found in await service.list_groups()] == ["billing"]
    coordinator.leads(None)
