"""A commit that may have been stored is never reported as not stored. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from groups.coordinator import Coordinator
from groups.requests import Commit, OffsetCommit, ReadGroup
from groups.service import GroupService
from raftlog.errors import CommitUnknown, NoLeader
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.instant_groups import InstantLog
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock


class DeposedLog(InstantLog):
    """Its leader is deposed as soon as it has appended; what it has written is committed by the next one."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self.coordinator = coordinator

    def propose(self, batches: Sequence[Batch]) -> asyncio.Future[None]:
        """The outcome never comes."""
        super().propose(batches)
        loop = asyncio.get_running_loop()
        loop.call_soon(self.coordinator.leads, None)
        return loop.create_future()


class OnePartition:
    """A topic that nobody leads any more."""

    partition_count = 1

    async def create(self, timeout_ms: int) -> int:
        """It is there."""
        return 1

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """This broker, which had led it."""
        return (NodeId(1),)


def a_commit() -> Commit:
    """One of a group without members."""
    return Commit(
        group="billing", offsets=(OffsetCommit(topic="orders", topic_id="0", partition=0, offset=7),)
    )


def service_of(coordinator: Coordinator) -> GroupService:
    """All groups, as this broker reaches them."""
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    return GroupService(NodeId(1), OnePartition(), {0: coordinator}, calls)


@in_virtual_time
async def test_a_commit_whose_coordinator_is_deposed_after_the_append_is_unknown() -> None:
    # requirement: D2
    coordinator = Coordinator("__offsets/0", VirtualClock(), {"orders": 1}, offsets_retention_ms=1 << 40)
    coordinator.leads(DeposedLog(coordinator))
    with pytest.raises(CommitUnknown):
        await service_of(coordinator).ask(a_commit(), timeout_ms=5_000)
    assert coordinator.state.offsets["billing"]  # and it is stored


@in_virtual_time
async def test_a_read_whose_coordinator_is_deposed_is_no_commit_in_doubt() -> None:
    coordinator = Coordinator("__offsets/0", VirtualClock(), {"orders": 1}, offsets_retention_ms=1 << 40)
    coordinator.leads(DeposedLog(coordinator))
    coordinator.leads(None)
    with pytest.raises(NoLeader):
        await service_of(coordinator).ask(ReadGroup(group="billing"), timeout_ms=5_000)
