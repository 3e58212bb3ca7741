"""Assembles one broker from its settings, and starts and stops its parts.

Decides: which parts a broker has, their dependencies, and the order in which they start and stop. The
filesystem, the clock and the transport are passed in, so that the simulator can replace them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.addresses import is_loopback
from broker.consumed_positions import ConsumedPositions
from broker.coordinators.delays import BrokerDelays
from broker.coordinators.groups import BrokerGroups
from broker.coordinators.transactions import BrokerTransactions
from broker.join_tokens import JoinTokens
from broker.process.disk_reserve import DiskReserve
from broker.settings import BrokerSettings
from partitions.hosting.first_start import FirstStart
from partitions.hosting.hosted_metadata import HostedMetadata
from partitions.hosting.peer_addresses import PeerAddresses
from partitions.hosting.replica_manager import ReplicaManager
from partitions.hosting.trash import Trash
from partitions.metadata.active import ControllerSettings
from partitions.metadata.balancer import BalancingSettings
from partitions.metadata.commands import RegisterBroker
from partitions.metadata.planner import PlannerLimits
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.service import Controller
from partitions.reassignment.admin import PartitionAdmin
from partitions.reassignment.load_meter import LoadMeter
from partitions.reassignment.metadata_members import MetadataMembers
from partitions.reassignment.preferred_leaders import PreferredLeaders
from partitions.reassignment.reassigner import Reassigner
from partitions.reassignment.removal import PartitionRemover
from partitions.routing.gateway import Gateway
from partitions.values import Consumed, key_of
from raftlog.clock import Clock
from raftlog.core.membership import NOBODY, Membership
from raftlog.hosting.compaction import CompactionManager
from raftlog.hosting.coordinator import Coordinator
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.progress_keeper import ProgressKeeper
from raftlog.hosting.retention import RetentionManager
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.cluster_time import ClockBounds
from raftlog.node.flusher import RunSyncs, SyncThreads
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.node.kernel_syncs import KernelSyncs
from raftlog.node.network.transport import Transport
from raftlog.node.peer_disks import PeerDisks
from raftlog.node.threads import in_thread
from raftlog.repair.repairer import Repairer
from raftlog.repair.scrubber import Scrubbed, Scrubber
from raftlog.repair.service import RepairService
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.disk_age import DiskAge
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.linux_aio import LinuxAio
from raftlog.storage.replica_progress import ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import METADATA_GROUP, GroupId, NodeId, TopicPartition

_log = logging.getLogger("raftlog.broker")

LISTENS_S = 2.0  # enough for several connection attempts of other brokers
METADATA_FOLDER = "__cluster_metadata"  # without a topic id, so it cannot conflict with a topic


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEnvironment:
    """The files, clock, network and random numbers that a broker uses: of a real machine, or of the
    simulator.
    """

    filesystem: Filesystem
    clock: Clock
    transport: Transport
    secret: bytes  # the secret of the cluster
    rng: random.Random  # also draws ids that grant access: a broker uses the kernel's random numbers
    run_syncs: RunSyncs
    on_fatal: Callable[[BaseException], None]  # a broken invariant: the process must end
    on_older_copy: Callable[[], None]  # the disk is an older copy: the broker must stop and start again
    frame_limits: FrameLimits = FRAME_LIMITS  # limits of the transport


def syncs_of_process() -> RunSyncs:
    """Create the runner of file syncs of this process: it uses the kernel (io_submit) if possible, otherwise
    threads.
    """
    threads = SyncThreads()
    try:
        return KernelSyncs(LinuxAio(), threads)
    except OSError as error:
        remedy = "; raise fs.aio-max-nr, or end what uses it" if error.errno == errno.EAGAIN else ""
        _log.info("files are synced by threads: the kernel offers no io_submit: %s%s", error, remedy)
        return threads


class Broker:
    """The parts of one broker without HTTP, which ``api.server`` adds."""

    def __init__(
        self, settings: BrokerSettings, environment: BrokerEnvironment, data_directory: str, http_url: str
    ) -> None:
        self.settings = settings
        self.node_id = NodeId(settings.broker_id)
        self.is_draining = False
        self.producer_ids = ProducerIdCipher(environment.secret)
        self.join_tokens = JoinTokens(environment.secret)
        self._environment = environment
        self._data_directory = data_directory
        self._http_url = http_url
        filesystem, clock = environment.filesystem, environment.clock
        self.disk = DiskReserve(filesystem, data_directory, settings.limits.disk_reserve_bytes, clock)
        self._registry = ReplicaRegistry.open(filesystem, data_directory, environment.rng)
        self.disks = self._peer_disks()
        limits = settings.limits
        self.host = GroupHost(
            self.node_id,
            environment.transport,
            clock,
            environment.rng,
            environment.run_syncs,
            on_fatal=environment.on_fatal,
            note_broken=self._note_broken,
            has_room=self.disk.has_room,
            is_drained=self._is_drained,
            is_in_use=lambda peer: self.controller.image.is_in_use(peer),
            disks=self.disks,
            settings=_host_settings(settings, environment.frame_limits),
        )
        self.repairs = RepairService(self.host, filesystem, in_thread, self._closed_files)
        self.repairer = Repairer(self.host, filesystem, in_thread, self.repairs, limits.repair_bytes_per_s)
        self.scrubber = Scrubber(
            filesystem, self.host.clock, in_thread, self._open_logs, limits.scrub_bytes_per_s
        )
        self._background: list[asyncio.Task[None]] = []
        self._broken = BrokenGroups(filesystem, data_directory, self.host.clock)
        progress = ReplicaProgress.open(filesystem, data_directory)
        self._logs = LogOpener(filesystem, data_directory, self.host.clock, self._registry, progress)
        self._progress = ProgressKeeper(self.host, progress, self._registry, in_thread)
        self.supervisor = Supervisor(self.host, self._registry, self._broken, repairer=self.repairer)
        self.retention = RetentionManager(self.host, self.supervisor.serving_tenants)
        self.compaction = self._compaction()
        self.controller = self._controller()
        self._addresses = self._peer_addresses()
        self._members = MetadataMembers(self.host, self.controller)
        self._first_start = self._first_start_of_cluster()
        self._consumed: dict[GroupId, Consumed] = {}
        self.manager = self._manager()
        self.gateway = self._gateway()
        self.controller.calls = self.gateway.relay
        self.controller.offer()
        self.groups = self._groups()
        self.transactions = self._transactions()
        self.delays = self._delays()
        self.admin = PartitionAdmin(self.host, self.controller, self.gateway, self.host.clock)
        self.reassigner = Reassigner(self.host, self.controller, self.manager.replicas)
        self.loads = LoadMeter(self.host, self.manager.replicas)
        self.controller.loads_here = self.loads.loads
        self.leaders = self._preferred_leaders()

    def _peer_disks(self) -> PeerDisks:
        """Read the age of the disk. If the disk is an older copy, give it a new disk id before any file on it
        is opened.
        """
        environment, registry = self._environment, self._registry
        age = DiskAge.open(environment.filesystem, self._data_directory, registry.disk_id, environment.rng)
        if age.is_older_copy:
            registry.begin_again(environment.rng)
            age.begin_again(registry.disk_id)
        return PeerDisks(environment.transport, age, environment.on_older_copy, in_thread)

    def _preferred_leaders(self) -> PreferredLeaders:
        after_ms = self.settings.timing.balance_after_ms
        return PreferredLeaders(self.host, lambda: self.controller.image, self.manager.replicas, after_ms)

    def _gateway(self) -> Gateway:
        return Gateway(
            self.node_id,
            self.controller,
            self.manager.replicas,
            self.host.calls,
            bytes_in_flight_max=self.settings.limits.request_bytes_in_flight_max,
            why_offline=self._why_offline,
            awaiting_archive=self.retention.awaiting_archive,
            consumed=self._consumed,
        )

    def _groups(self) -> BrokerGroups:
        return BrokerGroups(
            self.node_id,
            self.settings.groups,
            self.settings.queues,
            self.controller,
            self.gateway,
            self.host.clock,
            lambda added: self.transactions.check_open(added),
            self.disk.has_reserve,
            self._environment.frame_limits,
        )

    def _transactions(self) -> BrokerTransactions:
        return BrokerTransactions(
            self.node_id,
            self.settings.transactions,
            self.controller,
            self.gateway,
            self.host.clock,
            self.producer_ids,
            self.groups.service,
            self._environment.frame_limits,
        )

    def _delays(self) -> BrokerDelays:
        return BrokerDelays(
            self.node_id,
            self.settings.delayed,
            self.controller,
            self.gateway,
            self.host.clock,
            self.producer_ids,
            self._environment.frame_limits,
        )

    def _consumed_positions(self) -> ConsumedPositions:
        replicas, offsets = self.manager.replicas, self.groups.offsets
        return ConsumedPositions(lambda: self.controller.image, replicas, offsets, self._consumed)

    def _compaction(self) -> CompactionManager:
        rate, tenants = self.settings.limits.compaction_bytes_per_s, self.supervisor.serving_tenants
        return CompactionManager(self.host, self._environment.filesystem, in_thread, tenants, rate)

    def _manager(self) -> ReplicaManager:
        return ReplicaManager(
            self.host,
            self.controller,
            self.supervisor,
            self._logs,
            self._broken,
            producer_ids=self.producer_ids,
            producers_max=self.settings.limits.producers_max,
            trash=self._trash(),
            derive=lambda target: (
                self.groups.derive(target) or self.transactions.derive(target) or self.delays.derive(target)
            ),
            join=lambda *asked: self.transactions.join(*asked),
            consumed=self._consumed,
        )

    def _first_start_of_cluster(self) -> FirstStart:
        disk, directory = self._environment.filesystem, self._metadata_directory
        return FirstStart(
            self.host,
            self._other_brokers(),
            disk,
            directory,
            self._registry,
            in_thread,
            has_joined=self.settings.joined,
            # On one machine, losing the disk loses all brokers: waiting for others would not help.
            listens_s=0.0 if is_loopback(self.settings.peers[self.settings.broker_id].host) else LISTENS_S,
        )

    def _controller(self) -> Controller:
        return Controller(
            self.host,
            NOBODY if self.settings.joined else Membership(frozenset(map(NodeId, self.settings.peers))),
            self._registration(),
            ControllerSettings(
                cluster_id=self.settings.cluster_id,
                broker_timeout_ms=self.settings.timing.broker_timeout_ms,
                restore_after_ms=self.settings.timing.restore_after_ms,
                restore_moves_max=self.settings.limits.restore_moves_max,
                limits=PlannerLimits(
                    replicas_per_broker_max=self.settings.limits.broker_replicas_max,
                    partitions_max=self.settings.limits.cluster_partitions_max,
                ),
                balancing=BalancingSettings(
                    moves_max=self.settings.limits.balancing_moves_max,
                    after_ms=self.settings.timing.balance_after_ms,
                    copy_bytes_per_s=self.settings.limits.catch_up_bytes_per_s,
                ),
                feature_level=self.settings.feature_level_max,
            ),
            random.Random(self._environment.rng.getrandbits(64)),
        )

    def _peer_addresses(self) -> PeerAddresses:
        configured = {NodeId(peer): (each.host, each.port) for peer, each in self.settings.peers.items()}
        pinned = frozenset(NodeId(peer) for peer, each in self.settings.peers.items() if each.pinned)
        set_peer = self._environment.transport.set_peer
        disk_id = self._registry.disk_id
        addresses = PeerAddresses(self.node_id, configured, set_peer, self.host, pinned, disk_id)
        self.controller.subscribe(addresses.image_changed)
        return addresses

    def _trash(self) -> Trash:
        environment, delay_ms = self._environment, self.settings.timing.trash_delay_ms
        return Trash(
            environment.filesystem,
            self._data_directory,
            self.host.clock,
            in_thread,
            delay_ms=delay_ms,
            has_room=self.disk.has_room,
        )

    def _hosted_metadata(self) -> HostedMetadata:
        return HostedMetadata(
            self.controller,
            self._first_start.is_over,
            self._logs,
            in_thread,
            self._metadata_directory,
            self._other_brokers(),
            self._addresses.stands_in_log,
        )

    def _is_drained(self) -> bool:
        shown = self.controller.image.brokers.get(self.node_id)
        return shown is not None and shown.draining

    def _why_offline(self, target: TopicPartition) -> str:
        """Return the reason why the replica of ``target`` on this broker does not serve."""
        return (
            self.manager.failure_of(key_of(target))
            or self._first_start.trouble
            or self._why_without_metadata()
            or ("it is being opened" if self.controller.registration.is_registered else "")
            or f"its broker waits for an active controller: {self.controller.leader_known}"
        )

    def _why_without_metadata(self) -> str:
        reason = self.supervisor.reason_of(METADATA_GROUP)
        return f"the metadata log here is not open: {reason}" if reason else ""

    def _other_brokers(self) -> tuple[NodeId, ...]:
        return tuple(NodeId(peer) for peer in self.settings.peers if peer != self.node_id)

    async def start(self) -> None:
        """Connect to the peers, join the metadata group, and open the replicas. Raises ``OSError``."""
        self._addresses.begin()
        self.repairs.offer()
        self._first_start.offer()
        await self.host.start()
        begin = self.host.begin_duty
        self._background = [
            begin(self._addresses.run),
            begin(self.disks.run, self.settings.timing.disk_age_interval_ms),
            begin(self._progress.run, self.settings.timing.disk_age_interval_ms),
        ]
        self.supervisor.host(self._hosted_metadata())
        await self.supervisor.start()
        await self.supervisor.serving(METADATA_GROUP)
        await self.manager.start()
        await self.reassigner.start()
        check_ms = self.settings.timing.retention_check_interval_ms
        self._background += [
            begin(self.scrubber.run),
            begin(self.retention.run, check_ms),
            begin(self._consumed_positions().run, check_ms),
            begin(self.compaction.run, check_ms),
            begin(self.transactions.lost_markers.run),
            begin(self._members.run),
            begin(self.loads.run),
            *([begin(self.leaders.run)] if self.settings.limits.balancing_moves_max else ()),
            begin(
                PartitionRemover(
                    self.host, self.controller, self.manager.replicas, self.delays.service.is_moving_to
                ).run
            ),
        ]

    @property
    def coordinators(self) -> list[Coordinator[Any, Any, Any, Any]]:
        """All coordinators on this broker: of groups, transactions and delayed messages."""
        owners = self.groups, self.transactions, self.delays
        return [each for owner in owners for each in owner.coordinators.values()]

    async def drain(self) -> None:
        """Transfer the leaderships to other brokers; clients should send new requests to other brokers."""
        self.is_draining = True
        await self.host.transfer_leaderships()

    async def stop(self) -> None:
        """Stop all parts of the broker, in an order in which no part logs an error because another part has
        stopped.
        """
        await self.reassigner.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._progress.keep()
        await self.manager.stop()
        await self.supervisor.stop()
        await self.controller.stop()
        await self.host.stop()

    def _open_logs(self) -> list[Scrubbed]:
        return [
            Scrubbed(group, group.log)
            for group in self.host.groups.values()
            if group.stopped is None and isinstance(group.log, SegmentedLog)
        ]

    def _note_broken(self, group_id: GroupId, error: BaseException) -> None:
        if group_id != METADATA_GROUP:  # a broker cannot work without this group: it exits at every start
            self._broken.note(group_id, error)

    @property
    def _metadata_directory(self) -> str:
        return f"{self._data_directory}/{METADATA_FOLDER}/Partition-0"

    def _closed_files(self, group_id: GroupId) -> str | None:
        if group_id == METADATA_GROUP:
            return self._metadata_directory
        return self.manager.directory_of(group_id)

    def _registration(self) -> RegisterBroker:
        mine = self.settings.peers[self.settings.broker_id]
        return RegisterBroker(
            broker_id=self.node_id,
            incarnation=uuid.UUID(int=self._environment.rng.getrandbits(128)).hex,
            http_url=self._http_url,
            https_url=self.settings.https_url,
            rpc_host=mine.host,
            rpc_port=mine.port,
            rack=self.settings.rack,
            disk_id=self._registry.disk_id,
        )


def _host_settings(settings: BrokerSettings, frame_limits: FrameLimits) -> HostSettings:
    timing, limits = settings.timing, settings.limits
    return HostSettings(
        tick_ms=timing.tick_ms,
        heartbeat_ticks=timing.heartbeat_ticks,
        election_ticks=timing.election_ticks,
        quiesce_ticks=timing.quiesce_ticks,
        catch_up_bytes_per_s=limits.catch_up_bytes_per_s,
        uncommitted_bytes_max=limits.uncommitted_bytes_max,
        clock_bounds=ClockBounds(jump_ms_max=timing.clock_jump_ms_max, pause_ms=timing.clock_pause_ms),
        broker_timeout_ms=timing.broker_timeout_ms,
        frame_limits=frame_limits,
    )
