"""One broker, put together: settings in, a running broker out.

Decides: which parts there are, who is handed what, and the order in which they start and stop.
Leaves to others: everything that the parts do. The filesystem, the clock and the transport come
in from outside, so that a simulator can bring its own.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from api.disk_reserve import DiskReserve
from api.settings import BrokerSettings
from partitions.controller.active import ControllerSettings
from partitions.controller.commands import RegisterBroker
from partitions.controller.planner import PlannerLimits
from partitions.controller.service import Controller
from partitions.gateway import Gateway
from partitions.manager import PartitionManager
from raftlog.clock import Clock
from raftlog.node.flusher import RunSyncs, SyncThreads
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.node.transport import Transport
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import NodeId

METADATA_FOLDER = "__cluster_metadata"  # without a topic id: it is no topic, and none can be called so


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a broker finds outside: the machine's own, or a simulator's."""

    filesystem: Filesystem
    clock: Clock
    transport: Transport
    rng: random.Random
    run_syncs: RunSyncs
    on_fatal: Callable[[BaseException], None]  # a broken invariant: the process must end


def sync_thread() -> RunSyncs:
    """The threads of a process that wait for the disk."""
    return SyncThreads()


class Broker:
    """The parts of one broker. HTTP is put in front of it by ``server``."""

    def __init__(self, settings: BrokerSettings, world: World, data_directory: str, http_url: str) -> None:
        self.settings = settings
        self.node_id = NodeId(settings.broker_id)
        self.is_draining = False
        self._world = world
        self._data_directory = data_directory
        self._http_url = http_url
        self.disk = DiskReserve(
            world.filesystem, data_directory, settings.limits.disk_reserve_bytes, world.clock
        )
        timing = settings.timing
        self.host = GroupHost(
            self.node_id,
            world.transport,
            world.clock,
            world.rng,
            world.run_syncs,
            on_fatal=world.on_fatal,
            has_room=self.disk.has_room,
            settings=HostSettings(
                tick_ms=timing.tick_ms,
                heartbeat_ticks=timing.heartbeat_ticks,
                election_ticks=timing.election_ticks,
                quiet_ticks=timing.quiet_ticks,
            ),
        )
        self.controller = Controller(
            self.host,
            self._metadata_log(),
            frozenset(NodeId(peer) for peer in settings.peers),
            self._registration(),
            ControllerSettings(
                cluster_id=settings.cluster_id,
                dead_timeout_ms=timing.dead_timeout_ms,
                limits=PlannerLimits(replicas_per_broker_max=settings.limits.partitions_max),
            ),
            random.Random(world.rng.getrandbits(64)),
        )
        self.manager = PartitionManager(
            self.host,
            self.controller,
            world.filesystem,
            data_directory,
            world.clock,
            retention_check_ms=timing.retention_check_ms,
        )
        self.gateway = Gateway(
            self.node_id,
            lambda: self.controller.image,
            self.manager.replicas,
            self.host.calls,
            bytes_in_flight_max=settings.limits.request_bytes_in_flight_max,
        )

    async def start(self) -> None:
        """Join the peers and the metadata group, open the replicas. Raises ``OSError``, ``LogCorrupt``."""
        for peer, address in self.settings.peers.items():
            if peer != self.node_id:
                self._world.transport.set_peer(NodeId(peer), address.host, address.port)
        await self.host.start()
        await self.controller.start()
        await self.manager.start()

    async def drain(self) -> None:
        """Hand leaderships over; new requests go elsewhere from now on."""
        self.is_draining = True
        await self.host.hand_over()

    async def stop(self) -> None:
        """Close everything, in the order that keeps clean logs."""
        await self.manager.stop()
        await self.controller.stop()
        await self.host.stop()

    def _metadata_log(self) -> SegmentedLog:
        directory = f"{self._data_directory}/{METADATA_FOLDER}/Partition-0"
        return SegmentedLog.open(self._world.filesystem, directory, LogSettings(), self._world.clock)

    def _registration(self) -> RegisterBroker:
        mine = self.settings.peers[self.settings.broker_id]
        return RegisterBroker(
            broker_id=self.node_id,
            incarnation=uuid.UUID(int=self._world.rng.getrandbits(128)).hex,
            http_url=self._http_url,
            rpc_host=mine.host,
            rpc_port=mine.port,
            rack=self.settings.rack,
        )
