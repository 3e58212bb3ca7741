"""Connects transactions with a broker: with the topic ``__transactions``, and with the participating
partitions and groups.

Decides: when a participating partition counts as deleted. Leaves to others: transactions (``transactions``),
creating the topic (``internal_topics``), batches and markers in partitions (``partitions``).
"""

from __future__ import annotations

from broker.coordinators.lost_markers import LostMarkers
from broker.internal_topics import CreatedTopic
from broker.settings import TransactionSettings
from groups.requests import AddOffsets, EndOffsets
from groups.service import GroupService
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.service import Controller
from partitions.replica.derived import DerivedState
from partitions.replica.participant import TransactionName
from partitions.routing.confirmed_topics import CONFIRM_MS
from partitions.routing.gateway import Gateway
from raftlog.clock import TrustedClock
from raftlog.errors import TransactionNotFound
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.records.control import Marker
from raftlog.types import NodeId, TopicPartition
from transactions.coordinator import TransactionCoordinator
from transactions.fencing import check_takes_part
from transactions.one_shot import OneShots
from transactions.records import TOPIC, Handle, Participant
from transactions.requests import Described, Join, ReadTransaction
from transactions.service import TransactionService


class BrokerTransactions:
    """Runs the coordinators of the transactions of one broker."""

    def __init__(
        self,
        node_id: NodeId,
        settings: TransactionSettings,
        controller: Controller,
        gateway: Gateway,
        clock: TrustedClock,
        producer_ids: ProducerIdCipher,
        groups: GroupService,
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        self._settings = settings
        self._frame_limits = frame_limits
        self._clock = clock
        self._markers = BrokerMarkers(gateway, groups)
        self.coordinators: dict[int, TransactionCoordinator] = {}  # by partition of ``__transactions``

        async def new_producer_id(timeout_ms: int) -> int:
            (number,) = await controller.allocate_producer_ids(1, timeout_ms)
            return producer_ids.id_of(number)

        self._topic = topic = CreatedTopic(
            TOPIC,
            "transactions",
            controller,
            gateway,
            partitions=settings.partitions,
        )
        self.service = TransactionService(node_id, topic, self.coordinators, gateway.relay, new_producer_id)
        self.lost_markers = LostMarkers(self.service, gateway.replicas)
        self.one_shots = OneShots(node_id, self.service)

    def derive(self, target: TopicPartition) -> DerivedState | None:
        """Create the coordinator of a partition of ``__transactions`` whose replica is being opened on this
        broker.

        Returns None for partitions of other topics.
        """
        if target.topic != TOPIC:
            return None
        count = self._topic.partition_count or self._settings.partitions
        coordinator = TransactionCoordinator(
            str(target),
            self._clock,
            self._markers,
            id_retention_ms=self._settings.id_retention_ms,
            key_retention_ms=self._settings.key_retention_ms,
            state_bytes_max=self._settings.state_bytes_max // count,
            keys_bytes_max=self._settings.keys_bytes_max // count,
            frame_limits=self._frame_limits,
        )
        self.coordinators[target.partition] = coordinator
        return coordinator

    async def join(
        self, transactional_id: str, transaction: TransactionName, target: TopicPartition, timeout_ms: int
    ) -> None:
        """Add a partition to a transaction; see ``partitions.replica.participant.JoinTransaction``."""
        handle = Handle(transactional_id, transaction.producer_id, transaction.epoch)
        partition = target.topic, target.partition
        await self.service.ask(Join(transaction=handle, partitions=(partition,)), timeout_ms=timeout_ms)

    async def check_open(self, added: AddOffsets) -> None:
        """Raise an error unless a leader that is confirmed to lead has the transaction open; see
        ``groups.unconfirmed.CheckOpen``.
        """
        handle = Handle.parse(added.transaction)
        if handle is None or (handle.producer_id, handle.epoch) != (added.producer_id, added.epoch):
            raise TransactionNotFound(f"{added.transaction} is not a transaction")
        ask = ReadTransaction(transactional_id=handle.transactional_id)
        described = await self.service.ask(ask, timeout_ms=CONFIRM_MS)
        assert isinstance(described, Described)
        check_takes_part(handle, described.transaction, added.group)


class BrokerMarkers:
    """Ends transactions in partitions and groups; implements ``transactions.coordinator.Markers``."""

    def __init__(self, gateway: Gateway, groups: GroupService) -> None:
        self._gateway = gateway
        self._groups = groups

    async def write(
        self,
        target: Participant,
        transaction: Handle,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> None:
        """Write a transaction's marker to a partition. The gateway asks the controller before a topic counts
        as deleted.
        """
        marker = Marker(transaction.producer_id, transaction.epoch, is_commit, coordinator_epoch, 0)
        await self._gateway.mark(TopicPartition(*target), marker, timeout_ms=timeout_ms)

    async def end_offsets(self, group: str, transaction: Handle, *, is_commit: bool, timeout_ms: int) -> None:
        """Send a transaction's outcome to a group, whose service asks the controller before ``__offsets``
        counts as deleted.
        """
        request = EndOffsets(
            group=group,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
            is_commit=is_commit,
        )
        await self._groups.ask(request, timeout_ms=timeout_ms)
