"""Consumer groups of one broker, whose ``__offsets`` is one log in memory that commits at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NoReturn

from broker.coordinators.groups import ConsumedTopics
from broker.coordinators.jobs import BrokerJobs
from broker.ports import GatewayPort
from delayed.coordinator import DelayedCoordinator
from groups.coordinator import GroupCoordinator
from groups.offsets import GroupOffsets
from groups.requests import AddOffsets
from groups.service import GroupService
from queues.effects import Bury, Look, Looked
from raftlog.clock import TrustedClock
from raftlog.errors import StorageFull
from raftlog.hosting.known_topics import KnownTopics
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch, stamp
from raftlog.types import NodeId, Offset
from tests.helpers.fake_controller import FakeController
from tests.helpers.loop_network import LoopNetwork
from transactions.coordinator import TransactionCoordinator

AnyCoordinator = GroupCoordinator | TransactionCoordinator | DelayedCoordinator


class InstantLog:
    """A log that is committed as soon as it is written."""

    leader_epoch = 1
    has_room = True

    def __init__(self, coordinator: AnyCoordinator) -> None:
        self._coordinator = coordinator
        self._end = 0

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append and apply."""
        for batch in batches:
            stamped = stamp(batch.data, base_offset=Offset(self._end), leader_epoch=1, append_time_ms=None)
            self._end = stamped.last_offset + 1
            self._coordinator.apply(stamped)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def confirm(self) -> None:
        """It is the only one."""


class FullLog(InstantLog):
    """A log whose disk has filled after the question for room, while ``is_full``."""

    is_full = False

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Refused at once, as by a leader whose disk is full."""
        if self.is_full:
            raise StorageFull("the leader's disk is full; free space or retry later")
        return super().propose(batches, frees_room=frees_room)


class NoJobs:
    """Of a coordinator whose groups work nothing off."""

    async def look(self, look: Look) -> Looked:
        """Not called."""
        raise AssertionError(look)

    async def bury(self, bury: Bury) -> None:
        """Not called."""
        raise AssertionError(bury)


class TopicsOnly:
    """What a coordinator knows of topics when nobody asks for their logs."""

    def __init__(self, known: KnownTopics) -> None:
        self.known = known

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class OneTopic:
    """Created on first use; the coordinator needs a running event loop."""

    def __init__(self, name: str, coordinator: AnyCoordinator) -> None:
        self.name = name
        self._coordinator = coordinator
        self.partition_count: int | None = None

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """There is no other broker."""
        return self.partition_count

    async def create(self, timeout_ms: int) -> int:
        """Lead it from now on."""
        self._coordinator.leads(InstantLog(self._coordinator))
        self.partition_count = 1
        return 1

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """This broker."""
        return (NodeId(1),)


async def are_open(added: AddOffsets) -> None:
    """Every transaction is open."""


def instant_groups(
    controller: FakeController, gateway: GatewayPort, clock: TrustedClock
) -> tuple[GroupService, GroupOffsets]:
    """The groups of broker 1."""
    topics = ConsumedTopics(controller, gateway)
    controller.listener = topics.take
    jobs = BrokerJobs(controller, gateway, clock)
    coordinator = GroupCoordinator("__offsets/0", clock, topics, jobs, are_open, offsets_retention_ms=1 << 40)
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    service = GroupService(NodeId(1), OneTopic("__offsets", coordinator), {0: coordinator}, calls)
    return service, GroupOffsets(service, topics, clock)
