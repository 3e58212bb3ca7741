"""The ports through which HTTP uses a broker, and its limits.

Handlers translate and call one of these; they decide nothing. ``RequestPipeline`` takes a ``Services``;
``broker.serving`` fills it with the real parts, tests with fakes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client import CollectorRegistry

from broker.join_tokens import JoinTokens
from broker.settings import Limits as LimitSettings
from broker.settings import TransactionSettings
from delayed.service import DelayedService
from groups.offsets import GroupOffsets
from groups.service import GroupService
from partitions.metadata.balancing import PlanProposal
from partitions.metadata.commands import (
    AdmitBroker,
    DecommissionBroker,
    DrainBroker,
    EndPlan,
    ForgetBroker,
    StartPlan,
)
from partitions.metadata.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.refusals import Refused
from partitions.metadata.topic_config import DEFAULTS, as_json, complete
from partitions.replica.topic_rules import Body
from partitions.routing.confirmed_topics import ConfirmedTopics
from partitions.values import (
    Acks,
    AppendReceipt,
    FetchRequest,
    FetchResult,
    PartitionStatus,
    Position,
)
from raftlog.clock import Clock
from raftlog.core.membership import Membership
from raftlog.records.control import Archived
from raftlog.types import NodeId, Offset, Term, TopicPartition
from raftlog.wire.bodies import BrokerState, SettingValue
from raftlog.wire.limits import RECORDS_MAX
from transactions.one_shot import OneShots
from transactions.service import TransactionService


class ControllerPort(Protocol):
    """The part of ``partitions.metadata.service.Controller`` that handlers call."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    @property
    def leader(self) -> NodeId | None:
        """The active controller."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, SettingValue],
        timeout_ms: int,
    ) -> TopicInfo:
        """Raises ``InvalidRequest``, ``TopicExists``, ``NoLeader`` or ``CommitUnknown``."""

    async def delete_topic(self, name: str, *, expected_version: int | None, timeout_ms: int) -> int:
        """The metadata version of the deletion."""

    async def alter_config(
        self,
        name: str,
        changes: Mapping[str, SettingValue | None],
        *,
        expected_version: int | None,
        timeout_ms: int,
    ) -> TopicInfo:
        """``None`` resets a key to its default."""

    async def add_partitions(
        self, name: str, count: int, *, expected: int | None, expected_version: int | None, timeout_ms: int
    ) -> TopicInfo:
        """The topic with ``count`` more partitions than ``expected``."""

    async def decommission_partitions(
        self,
        name: str,
        *,
        partitions: Sequence[int] = (),
        count: int = 0,
        expected: int | None = None,
        is_ended: bool = False,
        expected_version: int | None = None,
        timeout_ms: int,
    ) -> TopicInfo:
        """The topic, of which these partitions take no more records, or take them again."""

    @property
    def members(self) -> Membership:
        """The members of the metadata group as this broker knows them."""

    async def admit_broker(self, request: AdmitBroker, timeout_ms: int) -> BrokerInfo:
        """The broker that may join. Raises ``Conflict``, ``NoLeader`` or ``CommitUnknown``."""

    async def change_broker(
        self, request: DrainBroker | DecommissionBroker | ForgetBroker, timeout_ms: int
    ) -> MetadataImage:
        """The metadata from then on. Raises ``Conflict``, ``NoLeader`` or ``CommitUnknown``."""

    async def propose_plan(self, timeout_ms: int) -> PlanProposal:
        """The moves that would balance the brokers. Raises ``Conflict`` or ``NoLeader``."""

    async def change_plan(self, request: StartPlan | EndPlan, timeout_ms: int) -> MetadataImage:
        """The metadata from then on. Raises ``PreconditionFailed``, ``Conflict`` and the like."""

    async def allocate_producer_ids(self, count: int, timeout_ms: int) -> range:
        """Numbers that were never allocated before."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """``image`` once it contains everything acknowledged before this call. Raises ``NoLeader``."""

    async def refused(self, timeout_ms: int) -> Refused:
        """New replicas that live brokers do not open. Raises ``NoLeader``."""

    async def wait_for_version(self, version: int, timeout_ms: int) -> None:
        """Return once ``image`` is at least that new."""


class GatewayPort(Protocol):
    """The part of ``partitions.routing.gateway.Gateway`` that handlers call.

    ``fetch`` may be cancelled at any time (its client disconnected); ``append`` is never cancelled.
    """

    async def append(
        self,
        target: TopicPartition,
        batches: Body,
        *,
        acks: Acks,
        timeout_ms: int,
        transactional_id: str | None = None,
        client: str = "",
    ) -> AppendReceipt:
        """Produce to one partition, all or nothing. Buffers that can be written to are given away."""

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """Read committed batches; waits on request."""

    async def delete_before(self, target: TopicPartition, offset: Offset, *, timeout_ms: int) -> Offset:
        """Delete the records below an offset; the log start then."""

    async def set_archived(self, target: TopicPartition, archived: Archived, *, timeout_ms: int) -> Offset:
        """Set up to which offset a partition is archived; the offset that counts then."""

    async def offset_at(
        self, target: TopicPartition, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """The offset of a position, and the timestamp of its record, if any."""

    async def describe(self, topic: str, partitions: Collection[int] | None = None) -> list[PartitionStatus]:
        """The status of some partitions of a topic, by default of all."""

    def leader_of(self, target: TopicPartition) -> NodeId | None:
        """The leader as this broker knows it."""


class AdminPort(Protocol):
    """The part of ``partitions.reassignment.admin.PartitionAdmin`` that handlers call."""

    async def transfer_leadership(
        self, target: TopicPartition, to: NodeId | None, timeout_ms: int, term: Term | None = None
    ) -> tuple[NodeId, Term]:
        """The new leader and its term; with ``term`` that of any later term."""

    async def change_replicas(self, wish: MoveReplicas, timeout_ms: int) -> PartitionInfo:
        """Set the target of a partition."""

    async def until_settled(self, target: TopicPartition, wait_ms: int) -> bool:
        """Wait, at most this time; true if the move of the partition is complete."""

    async def recover_unsafely(
        self, target: TopicPartition, confirm: str | None, timeout_ms: int
    ) -> PartitionInfo:
        """Recover without a majority; ``Conflict`` reports the consequences and the confirmation."""

    async def until_led(self, target: TopicPartition, wait_ms: int) -> bool:
        """Wait, at most this time; true if the partition has a leader."""


class ArchivePort(Protocol):
    """The part of ``broker.archived_reads.ArchivedGateway`` that is not of a gateway."""

    async def archived_from(self, target: TopicPartition) -> Offset | None:
        """The first offset from which the archive reaches the log; None if the log begins at 0."""

    async def stop(self) -> None:
        """Wait for running reads, though not for long."""


class NoArchive:
    """Without the setting ``archive.location``."""

    async def archived_from(self, target: TopicPartition) -> Offset | None:
        """Return None: there is no archive."""
        return None

    async def stop(self) -> None:
        """Do nothing: there are no reads of an archive."""


Checks = Callable[[], Mapping[str, bool]]
"""Conditions by name; true if the condition is met."""


def _nothing_to_check() -> Mapping[str, bool]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthProbes:
    """The conditions of the health paths. All of one must be met for a 200."""

    live: Checks = _nothing_to_check  # restart the process when this fails
    ready: Checks = _nothing_to_check  # send no requests while this fails
    startup: Checks = _nothing_to_check  # wait while this fails
    state: Callable[[], BrokerState | None] = lambda: None  # what the broker says of itself


_SETTINGS: Final = LimitSettings()
_TRANSACTIONS: Final = TransactionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that are checked before memory is allocated, with the defaults of the settings of equal name."""

    body_bytes_max: int = _SETTINGS.body_bytes_max  # one request, after decompression
    request_bytes_in_flight_max: int = _SETTINGS.request_bytes_in_flight_max  # all requests being handled
    request_bytes_in_flight_client_max: int = 192 << 20  # those of one client address
    # responses that clients have not read yet
    response_bytes_in_flight_max: int = _SETTINGS.response_bytes_in_flight_max
    parked_max: int = 20_000  # long polls and event streams
    parked_client_max: int = 10_000
    records_per_request_max: int = RECORDS_MAX
    fetch_bytes_default: int = 1 << 20
    fetch_bytes_max: int = _SETTINGS.fetch_bytes_max  # of binary batches
    fetch_json_bytes_max: int = 8 << 20  # converting them to JSON blocks the loop
    wait_ms_max: int = _SETTINGS.wait_ms_max  # below the idle time-outs of usual load balancers
    produce_timeout_ms_default: int = 30_000
    produce_timeout_ms_max: int = 300_000
    control_timeout_ms: int = 10_000  # topics, configuration, producer ids
    # the longest wait of a prepared transaction, which holds back readers
    prepared_ms_max: int = _TRANSACTIONS.prepared_ms_max
    body_timeout_s: float = 60.0  # a body must have arrived
    body_grace_s: float = 5.0  # after this time, the minimum rate
    body_rate_min: int = 16 << 10  # of received bytes per second
    write_timeout_s: float = 60.0  # for the reader to read one event
    heartbeat_ms: int = 15_000  # of event streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All services of the handlers."""

    broker_id: NodeId
    controller: ControllerPort
    topics: ConfirmedTopics
    gateway: GatewayPort
    log: GatewayPort  # without the archive: what queues read
    admin: AdminPort
    groups: GroupService
    group_offsets: GroupOffsets
    transactions: TransactionService
    one_shots: OneShots
    delayed: DelayedService
    clock: Clock
    producer_ids: ProducerIdCipher
    join_tokens: JoinTokens
    rng: random.Random  # for choices of partitions, and for ids that are rights: a broker takes the kernel's
    version: str
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    health: HealthProbes = field(default_factory=HealthProbes)
    limits: Limits = field(default_factory=Limits)
    own_names: frozenset[str] = frozenset()  # accepted in ``Host``, besides those of all brokers
    allowed_hosts: frozenset[str] = frozenset()  # names, or name:port; * for all
    allowed_origins: frozenset[str] = frozenset()  # of web pages that may write and read; * for all
    archive: ArchivePort = field(default_factory=NoArchive)

    def config_of(self, topic: TopicInfo) -> dict[str, int | str]:
        """The effective configuration of a topic, defaults included."""
        return complete(topic.config, topic.replication_factor)

    def settings_of(self, topic: TopicInfo) -> dict[str, SettingValue]:
        """The effective configuration of a topic, with the types of JSON."""
        return as_json(self.config_of(topic))

    def batch_bytes_max(self, topic: TopicInfo) -> int:
        """The topic's ``max.message.bytes``."""
        return int(topic.config.get("max.message.bytes", DEFAULTS["max.message.bytes"]))

    def http_address(self, broker: NodeId | None) -> str | None:
        """``host:port`` of a broker's HTTP listener."""
        info = None if broker is None else self.controller.image.brokers.get(broker)
        return None if info is None else info.http_url.partition("//")[2].rstrip("/")
