"""What peers are told of a metadata log is not what was seen of it before it was opened."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from partitions.hosting.metadata_supervisor import MetadataSupervisor
from raftlog.core.ready import HardState
from raftlog.node.blocking import RunBlocking
from raftlog.node.group_host import GroupHost
from raftlog.repair.repairer import Repairer
from raftlog.repair.service import SERVICE, Ask, RepairService, Told
from raftlog.repair.target import RepairTarget
from raftlog.storage.log_storage import LogStorage
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import NodeId, Term
from tests.unit.partitions.test_repairer import GROUP, Host, Leader, Net, at_once, log_of
from tests.unit.storage.test_recovery import DIRECTORY, open_log, sync


class Member:
    """Takes part with the log that it is given."""

    failure: BaseException | None = None

    def __init__(self, host: Host) -> None:
        self._host = host

    async def start(self, log: LogStorage) -> None:
        """From now on."""
        assert isinstance(log, SegmentedLog)
        self._host.groups[GROUP] = Leader(log, Term(1))

    async def leave(self) -> None:
        """Not any more."""
        self._host.groups.pop(GROUP).log.close()


# requirement: M3
def test_a_peer_that_asks_before_the_log_is_opened_is_told_of_the_terms_that_came_after() -> None:
    """It has lost a slot: an older term than this broker has promised would let it vote twice."""
    filesystem, net, run = log_of(1, 1), Net(), cast("RunBlocking", at_once)
    host = Host(NodeId(2), net)
    service = RepairService(cast("GroupHost", host), filesystem, run, lambda group: DIRECTORY, "/data")
    service.offer()
    repairer = Repairer(cast("GroupHost", host), filesystem, run, service)
    repair_target = RepairTarget(GROUP, DIRECTORY, (NodeId(1),))

    async def opened() -> SegmentedLog:
        return open_log(filesystem)

    supervisor = MetadataSupervisor(Member(host), repairer, repair_target, opened)

    async def term() -> int:
        answer, _ = await host.call(
            NodeId(2), SERVICE, msgspec.msgpack.encode(Ask(group_id=GROUP)), timeout_ms=1
        )
        return msgspec.msgpack.decode(answer, type=Told).term

    async def story() -> None:
        assert await term() == 1
        await supervisor.join()
        group = host.groups[GROUP]
        group.log.save_hard_state(HardState(Term(7), NodeId(3)))
        sync(group.log)
        group.stop(OSError(5, "Input/output error"))
        assert await term() == 7

    asyncio.run(story())
