"""Ports through which HTTP handlers use a broker, and the limits of requests.

Handlers translate requests and call a port; they decide nothing. ``RequestPipeline`` takes a ``Services``
object: ``broker.serving`` fills it with the real parts of a broker, tests fill it with fakes.
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
        """The node id of the active controller; None if this broker knows none."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, SettingValue],
        timeout_ms: int,
    ) -> TopicInfo:
        """Create a topic. Raises ``InvalidRequest``, ``TopicExists``, ``NoLeader`` or ``CommitUnknown``."""

    async def delete_topic(self, name: str, *, expected_version: int | None, timeout_ms: int) -> int:
        """Delete a topic; return the metadata version of the deletion."""

    async def alter_config(
        self,
        name: str,
        changes: Mapping[str, SettingValue | None],
        *,
        expected_version: int | None,
        timeout_ms: int,
    ) -> TopicInfo:
        """Change the configuration of a topic; the value ``None`` resets a key to its default."""

    async def add_partitions(
        self, name: str, count: int, *, expected: int | None, expected_version: int | None, timeout_ms: int
    ) -> TopicInfo:
        """Add ``count`` partitions to a topic that has ``expected`` partitions."""

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
        """Stop writes to ``partitions`` of a topic, or to its last ``count``; with ``is_ended``, resume the
        writes.
        """

    @property
    def members(self) -> Membership:
        """The members of the metadata group as this broker knows them."""

    async def admit_broker(self, request: AdmitBroker, timeout_ms: int) -> BrokerInfo:
        """Admit a broker that may join. Raises ``Conflict``, ``NoLeader`` or ``CommitUnknown``."""

    async def change_broker(
        self, request: DrainBroker | DecommissionBroker | ForgetBroker, timeout_ms: int
    ) -> MetadataImage:
        """Change a broker's state; return the new metadata.

        Raises ``Conflict``, ``NoLeader`` or ``CommitUnknown``.
        """

    async def propose_plan(self, timeout_ms: int) -> PlanProposal:
        """Propose the moves that would balance the brokers. Raises ``Conflict`` or ``NoLeader``."""

    async def change_plan(self, request: StartPlan | EndPlan, timeout_ms: int) -> MetadataImage:
        """Start or end a plan of moves that balance brokers; return the new metadata.

        Raises ``PreconditionFailed``, ``Conflict``, ``NoLeader`` or ``CommitUnknown``.
        """

    async def allocate_producer_ids(self, count: int, timeout_ms: int) -> range:
        """Allocate ``count`` numbers for producer ids; no number is allocated twice."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Return ``image`` once it contains all changes acknowledged before this call.

        Raises ``NoLeader``.
        """

    async def refused(self, timeout_ms: int) -> Refused:
        """Return the new replicas that live brokers do not open. Raises ``NoLeader``."""

    async def wait_for_version(self, version: int, timeout_ms: int) -> None:
        """Return once the version of ``image`` is at least ``version``."""


class GatewayPort(Protocol):
    """The part of ``partitions.routing.gateway.Gateway`` that handlers call."""

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
        """Append batches to one partition: all batches or none.

        The gateway keeps the buffers of the batches; a caller must not change a writable buffer afterwards.
        """

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """Read committed batches. If the request has a wait time, waits for records up to that time."""

    async def delete_before(self, target: TopicPartition, offset: Offset, *, timeout_ms: int) -> Offset:
        """Delete the records below an offset; return the new log start offset."""

    async def set_archived(self, target: TopicPartition, archived: Archived, *, timeout_ms: int) -> Offset:
        """Set the archived offset of a partition; return the archived offset that is then in force."""

    async def offset_at(
        self, target: TopicPartition, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """Return the offset of a position and the timestamp of its record; the timestamp is None if there is
        no record.
        """

    async def describe(self, topic: str, partitions: Collection[int] | None = None) -> list[PartitionStatus]:
        """Return the status of the partitions with these numbers; of all partitions by default."""

    def leader_of(self, target: TopicPartition) -> NodeId | None:
        """The leader of a partition as this broker knows it."""


class AdminPort(Protocol):
    """The part of ``partitions.reassignment.admin.PartitionAdmin`` that handlers call."""

    async def transfer_leadership(
        self, target: TopicPartition, to: NodeId | None, timeout_ms: int, term: Term | None = None
    ) -> tuple[NodeId, Term]:
        """Transfer leadership; return the new leader and its term.

        Does nothing if a leader with a term above ``term`` leads already.
        """

    async def change_replicas(self, wish: MoveReplicas, timeout_ms: int) -> PartitionInfo:
        """Set the target replicas of a partition; return its new description."""

    async def until_settled(self, target: TopicPartition, wait_ms: int) -> bool:
        """Wait at most ``wait_ms``; return True if the move of the partition is complete."""

    async def recover_unsafely(
        self, target: TopicPartition, confirm: str | None, timeout_ms: int
    ) -> PartitionInfo:
        """Recover a partition without a majority of its replicas.

        Raises ``Conflict`` if ``confirm`` is not the required phrase; the error reports the consequences and
        the phrase.
        """

    async def until_led(self, target: TopicPartition, wait_ms: int) -> bool:
        """Wait at most ``wait_ms``; return True if the partition has a leader."""


class ArchivePort(Protocol):
    """The part of ``broker.archived_reads.ArchivedGateway`` that ``GatewayPort`` does not have."""

    async def archived_from(self, target: TopicPartition) -> Offset | None:
        """Return the first offset from which the archive has all records up to the log start; None if the log
        begins at offset 0.
        """

    async def stop(self) -> None:
        """Wait a short time for running reads of the archive."""


class NoArchive:
    """Replaces the archive in a broker without the setting ``archive.location``."""

    async def archived_from(self, target: TopicPartition) -> Offset | None:
        """Return None: there is no archive."""
        return None

    async def stop(self) -> None:
        """Do nothing: there are no reads of an archive."""


Checks = Callable[[], Mapping[str, bool]]
"""A function that returns conditions by name; the value is true if the condition is met."""


def _nothing_to_check() -> Mapping[str, bool]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthProbes:
    """The conditions of each health path. A path answers with status 200 if all its conditions are met."""

    live: Checks = _nothing_to_check  # restart the process when this fails
    ready: Checks = _nothing_to_check  # send no requests while this fails
    startup: Checks = _nothing_to_check  # wait while this fails
    state: Callable[[], BrokerState | None] = lambda: None  # the broker's report of its own state


_SETTINGS: Final = LimitSettings()
_TRANSACTIONS: Final = TransactionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on requests that are checked before memory is allocated.

    The defaults are the defaults of the settings with these names.
    """

    body_bytes_max: int = _SETTINGS.body_bytes_max  # of one request, after decompression
    request_bytes_in_flight_max: int = _SETTINGS.request_bytes_in_flight_max  # of all requests being handled
    request_bytes_in_flight_client_max: int = 192 << 20  # of the requests of one client address
    # of responses that clients have not read yet
    response_bytes_in_flight_max: int = _SETTINGS.response_bytes_in_flight_max
    parked_max: int = 20_000  # long polls and event streams
    parked_client_max: int = 10_000
    records_per_request_max: int = RECORDS_MAX
    fetch_bytes_default: int = 1 << 20
    fetch_bytes_max: int = _SETTINGS.fetch_bytes_max  # of binary batches
    fetch_json_bytes_max: int = 8 << 20  # of JSON responses: their conversion blocks the loop
    wait_ms_max: int = _SETTINGS.wait_ms_max  # below the idle timeouts of common load balancers
    produce_timeout_ms_default: int = 30_000
    produce_timeout_ms_max: int = 300_000
    control_timeout_ms: int = 10_000  # for topics, configuration, producer ids
    # longest wait for the end of a prepared transaction, which holds back readers
    prepared_ms_max: int = _TRANSACTIONS.prepared_ms_max
    body_timeout_s: float = 60.0  # within which a body must have arrived
    body_grace_s: float = 5.0  # after which ``body_rate_min`` applies
    body_rate_min: int = 16 << 10  # received bytes per second
    write_timeout_s: float = 60.0  # within which a client must read one event
    heartbeat_ms: int = 15_000  # interval of heartbeats in event streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that the handlers use."""

    broker_id: NodeId
    controller: ControllerPort
    topics: ConfirmedTopics
    gateway: GatewayPort
    log: GatewayPort  # reads without the archive, for queues
    admin: AdminPort
    groups: GroupService
    group_offsets: GroupOffsets
    transactions: TransactionService
    one_shots: OneShots
    delayed: DelayedService
    clock: Clock
    producer_ids: ProducerIdCipher
    join_tokens: JoinTokens
    rng: random.Random  # for choices of partitions, and for ids that grant access: a broker uses the kernel's
    version: str
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    health: HealthProbes = field(default_factory=HealthProbes)
    limits: Limits = field(default_factory=Limits)
    own_names: frozenset[str] = frozenset()  # accepted in ``Host``, besides the names of all brokers
    allowed_hosts: frozenset[str] = frozenset()  # names, or name:port; * for all
    allowed_origins: frozenset[str] = frozenset()  # of web pages that may read and write; * for all
    archive: ArchivePort = field(default_factory=NoArchive)

    def config_of(self, topic: TopicInfo) -> dict[str, int | str]:
        """Return the effective configuration of a topic, including defaults."""
        return complete(topic.config, topic.replication_factor)

    def settings_of(self, topic: TopicInfo) -> dict[str, SettingValue]:
        """Return the effective configuration of a topic, with JSON types."""
        return as_json(self.config_of(topic))

    def batch_bytes_max(self, topic: TopicInfo) -> int:
        """The setting ``max.message.bytes`` of a topic."""
        return int(topic.config.get("max.message.bytes", DEFAULTS["max.message.bytes"]))

    def url_of(self, broker: NodeId | None, scheme: str) -> str | None:
        """Return the URL of a broker's listener for ``http`` or ``https``; None without a listener."""
        info = None if broker is None else self.controller.image.brokers.get(broker)
        return None if info is None else info.url(scheme)

    def address_of(self, broker: NodeId | None, scheme: str) -> str | None:
        """Return ``host:port`` of a broker's listener for a scheme; None without a listener."""
        url = self.url_of(broker, scheme)
        return None if url is None else url.partition("//")[2].rstrip("/")
