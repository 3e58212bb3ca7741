"""Connects the coordinators of delayed messages with a broker: with the topic ``__delayed`` and the target
partitions.

Decides: when a target counts as deleted. Leaves to others: delayed messages (``delayed``), creating the topic
(``internal_topics``), detecting duplicates (``partitions``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from typing import Final

from broker.internal_topics import CreatedTopic
from broker.ports import ControllerPort, GatewayPort
from broker.read_ahead import ReadAhead
from broker.settings import DelaySettings
from delayed.coordinator import DelayedCoordinator
from delayed.records import KINDS, TOPIC, LaneKey, Message
from delayed.room import MoveRoom
from delayed.service import DelayedService
from delayed.values import TopicKey
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.service import Controller
from partitions.metadata.topic_config import complete, number
from partitions.replica.derived import DerivedState
from partitions.routing.confirmed_topics import MISSING, ConfirmedTopics
from partitions.routing.gateway import Gateway
from partitions.values import QUORUM, FetchRequest
from raftlog.clock import TrustedClock
from raftlog.errors import (
    DelayedNotFound,
    InvalidRequest,
    PartitionDecommissioned,
    PartitionNotFound,
    TopicNotFound,
)
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.records.batch import HEADER_BYTES, Batch, Codec, split_batches
from raftlog.records.builder import build_batch
from raftlog.records.keys import partition_for_key
from raftlog.records.reader import StoredRecord, iter_records, read_records
from raftlog.types import NodeId, Offset, TopicPartition

READ_BYTES: Final = 256 << 10  # of batches in one read; at least one batch
READS_MAX: Final = 4  # at a time: a batch may have 8 MiB, and its messages may be for many partitions


class BrokerDelays:
    """Runs the coordinators of delayed messages of one broker."""

    def __init__(
        self,
        node_id: NodeId,
        settings: DelaySettings,
        controller: Controller,
        gateway: Gateway,
        clock: TrustedClock,
        producer_ids: ProducerIdCipher,
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        self._settings = settings
        self._frame_limits = frame_limits
        self._clock = clock
        self._room = MoveRoom()
        self._delivery = BrokerDelivery(controller, gateway, clock, producer_ids)
        self.coordinators: dict[int, DelayedCoordinator] = {}  # by partition of ``__delayed``

        self._topic = topic = CreatedTopic(
            TOPIC,
            "delayed messages",
            controller,
            gateway,
            partitions=settings.partitions,
        )
        self.service = DelayedService(node_id, topic, self.coordinators, gateway.relay, self._delivery)
        self._topic_ids = frozenset[str]()  # ids of the topics in the newest image
        controller.subscribe(self._image_changed)

    def derive(self, target: TopicPartition) -> DerivedState | None:
        """Create the coordinator of a partition of ``__delayed`` whose replica is being opened on this
        broker.

        Returns None for partitions of other topics.
        """
        if target.topic != TOPIC:
            return None
        count = self._topic.partition_count or self._settings.partitions
        coordinator = DelayedCoordinator(
            str(target),
            target.partition,
            self._clock,
            self._delivery,
            pending_max=self._settings.pending_max,
            pending_bytes_max=self._settings.pending_bytes_max // count,
            batch_bytes_max=self._delivery.batch_bytes_max,
            room=self._room,
            frame_limits=self._frame_limits,
        )
        self.coordinators[target.partition] = coordinator
        return coordinator

    def _image_changed(self, image: MetadataImage) -> None:
        before, self._topic_ids = self._topic_ids, frozenset(each.topic_id for each in image.topics.values())
        if before - self._topic_ids:
            for coordinator in self.coordinators.values():
                coordinator.topic_deleted()


class BrokerDelivery:
    """Delivers messages through the gateway; implements ``delayed.coordinator.Delivery``."""

    def __init__(
        self,
        controller: ControllerPort,
        gateway: GatewayPort,
        clock: TrustedClock,
        producer_ids: ProducerIdCipher,
    ) -> None:
        self._controller = controller
        self._topics = ConfirmedTopics(controller)
        self._gateway = gateway
        self._clock = clock
        self._producer_ids = producer_ids
        self._reads = asyncio.Semaphore(READS_MAX)
        self._turns = defaultdict[int, asyncio.Lock](asyncio.Lock)  # by partition of ``__delayed``
        self._ahead = ReadAhead()

    def batch_bytes_max(self, topic: str) -> int:
        """Return the maximum bytes of records in a batch of a topic; 1 if the topic is deleted."""
        found = self._topics.topic_here(topic)
        if found is None:
            return 1
        config = complete(found.config, found.replication_factor)
        return number(config, "max.message.bytes") - HEADER_BYTES

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """Read accepted messages. Raises ``DelayedNotFound`` for a message that compaction has removed.

        A batch has messages for several moves to target partitions. The first move reads the batch and keeps
        the messages of the other moves, which meanwhile wait.
        """
        wanted, found = set(offsets), dict[int, Message]()
        target = TopicPartition(TOPIC, partition)
        async with self._turns[partition]:
            for offset in sorted(wanted):
                if offset in found or self._take_kept(partition, offset, found):
                    continue
                async with self._reads:
                    epoch = self._ahead.epoch_of(partition)
                    request = FetchRequest(position=Offset(offset), bytes_max=READ_BYTES)
                    result = await self._gateway.fetch(target, request)
                    for batch in split_batches(result.data):
                        others = self._decode(batch, wanted, offset, found)
                        self._ahead.keep(partition, epoch, others)
                if offset not in found:
                    raise DelayedNotFound(f"the message at offset {offset} of {target} was compacted")
        return [found[offset] for offset in offsets]

    def begin(self, partition: int, *, is_led: bool) -> None:
        """Begin a new epoch of a partition of ``__delayed``, and forget its messages that were read ahead."""
        self._ahead.begin(partition, is_led=is_led)

    def _take_kept(self, partition: int, offset: int, found: dict[int, Message]) -> bool:
        record = self._ahead.take(partition, offset)
        return record is not None and _add_message(record, found)

    def _decode(
        self, batch: Batch, wanted: Set[int], first: int, found: dict[int, Message]
    ) -> list[StoredRecord]:
        """Add the messages at ``wanted`` offsets from ``first`` on to ``found``; return the other records of
        the batch if there is memory to keep them.
        """
        header = batch.header
        if header.is_control or wanted.isdisjoint(range(batch.base_offset, batch.last_offset + 1)):
            return []
        if not self._ahead.takes(header.record_count, len(batch.data)):
            for record in iter_records(batch, first):
                if record.offset in wanted:
                    _add_message(record, found)
            return []
        others: list[StoredRecord] = []
        for record in read_records(batch):
            if record.offset not in wanted:
                if record.value is not None:
                    others.append(record)
            elif record.offset >= first:
                _add_message(record, found)
        return others

    async def append(
        self,
        lane: LaneKey,
        messages: Sequence[Message],
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        timeout_ms: int,
    ) -> None:
        """Append a batch of messages to its target partition; ask the controller before a topic counts as
        deleted.
        """
        try:
            self._check(lane, messages)
        except (*MISSING, InvalidRequest, PartitionDecommissioned):
            await self._topics.confirm()
            self._check(lane, messages)
        data = build_batch(
            [message.record for message in messages],
            codec=Codec.NONE,
            timestamp_ms=self._clock.wall_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            lists_tags=True,
        )
        target = TopicPartition(lane.topic, lane.partition)
        try:
            await self._gateway.append(target, data, acks=QUORUM, timeout_ms=timeout_ms)
        except MISSING:
            self._check(lane, messages)  # the partition may have been removed: others take the messages
            raise

    def targets_of(self, lane: LaneKey, messages: Sequence[Message]) -> tuple[int, ...]:
        """Choose the target partition of each message: by its key; all messages of a lane without a key get
        the same partition.
        """
        topic = self._topics.topic_here(lane.topic)
        count = lane.partition if topic is None else min(topic.writable_partitions, lane.partition)
        return tuple(
            lane.partition % count if message.key is None else partition_for_key(message.key, count)
            for message in messages
        )

    async def new_producer_id(self, timeout_ms: int) -> int:
        """Allocate a producer id."""
        (allocated,) = await self._controller.allocate_producer_ids(1, timeout_ms)
        return self._producer_ids.id_of(allocated)

    async def gone(self, lanes: Collection[LaneKey]) -> Set[LaneKey]:
        """Return the lanes whose target partition does not exist, according to metadata that the controller
        confirmed.
        """
        await self._topics.hear_of((lane.topic, lane.partition) for lane in lanes)
        return {lane for lane in lanes if not self._topics.has(lane.topic, lane.partition)}

    async def deleted(self, topics: Collection[TopicKey]) -> Set[TopicKey]:
        """Return the deleted topics among ``topics``, according to metadata that the controller confirmed."""
        if any(map(self._is_deleted, topics)):
            await self._topics.confirm()
        return set(filter(self._is_deleted, topics))

    def _is_deleted(self, topic: TopicKey) -> bool:
        return self._topics.topic_here(topic.name, topic.topic_id or None) is None

    def _check(self, lane: LaneKey, messages: Sequence[Message]) -> None:
        topic = self._topics.topic_here(lane.topic)
        if topic is None:
            raise TopicNotFound(f"the topic {lane.topic} was deleted", topic=lane.topic)
        is_known = lane.partition < len(topic.partitions)
        if not is_known and topic.removed_partition(lane.partition) is None:
            raise PartitionNotFound(f"{lane.topic} has no partition {lane.partition}", topic=lane.topic)
        if any(not _is_for(message, topic) for message in messages):
            raise InvalidRequest(f"the topic {lane.topic} was deleted and created again", field="topic")
        if not is_known:
            raise PartitionDecommissioned(f"{lane.topic}/{lane.partition} was removed", topic=lane.topic)


def _add_message(record: StoredRecord, found: dict[int, Message]) -> bool:
    """Add the message of a record to ``found``; return False if the record is not a message."""
    known = KINDS.decoded(record.key, record.value)
    if known is None or not isinstance(known[1], Message):
        return False
    found[record.offset] = known[1]
    return True


def _is_for(message: Message, topic: TopicInfo) -> bool:
    return message.topic_id == str(topic.topic_id)
